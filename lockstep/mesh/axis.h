// The directions of the mesh, sets of them, and the order in which they are laid over the ranks.
//
// There are two views of the same ranks. The dense view is tp x cp x pp x dp, where dp is shard x
// replicate (hybrid sharding): consecutive dp coordinates form a shard group. The expert view reads
// the ranks of one pp coordinate again as etp x ep x edp, where edp is shard x replicate too. pp
// belongs to both views.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "lockstep/base/result.h"

namespace lockstep::mesh {

// Declared in member order, view by view: a group's members are counted with the earlier axis
// faster.
enum class Axis : std::uint8_t {
  kTensor,               // tp
  kContext,              // cp
  kExpertTensor,         // etp
  kExpert,               // ep
  kPipeline,             // pp
  kDataShard,            // dp_shard
  kDataReplicate,        // dp_replicate
  kExpertDataShard,      // edp_shard
  kExpertDataReplicate,  // edp_replicate
};
inline constexpr int kNumAxes = 9;

inline constexpr std::array kDenseView = {Axis::kTensor, Axis::kContext, Axis::kPipeline,
                                          Axis::kDataShard, Axis::kDataReplicate};
inline constexpr std::array kExpertView = {Axis::kExpertTensor, Axis::kExpert, Axis::kPipeline,
                                           Axis::kExpertDataShard, Axis::kExpertDataReplicate};

std::string_view to_text(Axis axis);  // "dp_shard"

// A value, cheap to copy. An Axis converts to the set of itself.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis)  // NOLINT(google-explicit-constructor)
      : bits_(static_cast<std::uint16_t>(1u << static_cast<unsigned>(axis))) {}
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) *this = *this | axis;
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Axis axis) const { return !(*this & axis).empty(); }
  constexpr bool covers(AxisSet other) const { return (*this & other) == other; }

  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return of_bits(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return of_bits(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return of_bits(a.bits_ & ~b.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

 private:
  static constexpr AxisSet of_bits(int bits) {
    AxisSet set;
    set.bits_ = static_cast<std::uint16_t>(bits);
    return set;
  }
  std::uint16_t bits_ = 0;
};

inline constexpr AxisSet kDp = {Axis::kDataShard, Axis::kDataReplicate};
inline constexpr AxisSet kData = kDp | Axis::kContext;  // ranks that sum one dense gradient
inline constexpr AxisSet kDenseShard = {Axis::kContext, Axis::kDataShard};  // ZeRO, dense segments
inline constexpr AxisSet kExpertData = {Axis::kExpertDataShard, Axis::kExpertDataReplicate};
inline constexpr AxisSet kWorld = kData | Axis::kTensor | Axis::kPipeline;
inline constexpr AxisSet kExpertWorld =
    kExpertData | Axis::kExpertTensor | Axis::kExpert | Axis::kPipeline;

// "tp", "dp" for both dp axes, "data" for cp and dp, "edp", "world"; any other set is spelled out
// as "tp+cp", the empty one as "self". Different sets have different texts; the ledger files
// traffic under this text.
std::string to_text(AxisSet axes);

// Which axis neighbours in rank number are neighbours along, fastest first. Spelled as a
// permutation of "tp,cp,pp,dp", which is also the default. The order decides only which links a
// group crosses; members of a group are counted the same way under every order, so sums do not
// depend on it.
class Order {
 public:
  Order() = default;
  static Result<Order> parse(std::string_view text);

  // dp appears as its two axes, shard before replicate.
  const std::array<Axis, 5>& axes() const { return axes_; }
  bool operator==(const Order&) const = default;

 private:
  std::array<Axis, 5> axes_ = kDenseView;
};

std::string to_text(const Order& order);  // "tp,cp,pp,dp"

}  // namespace lockstep::mesh
