// What parts read and write. A value is made once and never changes; it has a name, dimensions in
// symbols and a type of elements, but no place in memory: place.h gives it one.
//
//   T tokens of a microbatch on this rank, N those of its context group, P this rank's rows of T
//   between the parts that tensor parallelism cuts, h hidden; of this rank: q and k the widths of
//   its query and of its key heads, w = q + 2k, a and kv its heads, d one head's width, f and g of
//   the MLP (g = 2f with a gate), V its rows of the vocabulary, padded to as many on every rank.
//   c rows of a chunk of logits, bound while a list repeats; t tensor ranks. a/c, kv/c, q/c, k/c
//   and w/c are a context rank's share of the heads where whole sequences are put together.
//   Of a mixture: e experts, of which each token meets top; R = top T rows; x the width of an
//   expert on this rank; s sequences. Where ranks share experts: l of them are this rank's, which
//   meet M rows. Where not all tensor ranks share an expert, U are the tokens of those that do, and
//   R = top U. Of the experts that every token meets, y is the width on this rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/unit_bytes.h"

namespace lockstep::parts {

// clang-format off
enum class Dim : std::uint8_t {
  kT, kP, kH, kQ, kK, kW, kA, kKv, kD, kF, kG, kV, kC, kRanks, kThree, kN, kKeys,
  kShareA, kShareKv, kShareQ, kShareK, kShareW, kExperts, kTop, kR, kX, kSequences,
  kOwnExperts, kMet, kOne, kShared, kSharedPair, kU
};
// clang-format on
inline constexpr EnumNames<Dim, 33> kDims = {
    {"T", "P",   "h", "q", "k", "w",  "a",   "kv",   "d",   "f",   "g",
     "V", "c",   "t", "3", "N", "2k", "a/c", "kv/c", "q/c", "k/c", "w/c",
     "e", "top", "R", "x", "s", "l",  "M",   "1",    "y",   "2y",  "U"}};

enum class Elem : std::uint8_t {
  kCompute,  // the run's dtype
  kWide,     // at least f32: statistics, logits, gradients of parameters
  kIndex,    // i64
  kFlag,     // a byte
};

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

struct Value {
  std::string name;  // a later content of the same memory may have the same
  std::vector<Dim> dims;
  Elem elem = Elem::kCompute;
};

// All values of a unit's passes. Ids count from 0 and stay.
class Values {
 public:
  ValueId add(std::string name, std::vector<Dim> dims, Elem elem = Elem::kCompute) {
    all_.push_back({std::move(name), std::move(dims), elem});
    return static_cast<ValueId>(all_.size()) - 1;
  }
  // A new one of the same dimensions and type.
  ValueId like(ValueId of, std::string name) {
    return add(std::move(name), (*this)[of].dims, (*this)[of].elem);
  }
  Value& operator[](ValueId id) { return all_[static_cast<std::size_t>(id)]; }
  const Value& operator[](ValueId id) const { return all_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return all_.size(); }

 private:
  std::vector<Value> all_;
};

// The symbols' values on one rank, and what else decides about memory.
struct Sizes {
  std::array<std::int64_t, 33> dims{};
  std::int64_t width = 4, wide = 4;  // bytes of an element
  std::int64_t seq = 1;              // tokens of a sequence on this rank
  std::int64_t tp = 1, cp = 1, ep = 1, etp = 1, threads = 1;
  std::int64_t own_met = 0;  // rows that this rank sends to its own experts
  model::CpMethod context = model::CpMethod::kRing;
  std::int64_t window = 0;  // of a block: keys that a query sees; 0: all before it
  bool plus_one = false;    // norms store their gains less one
  bool packs_keys = true;
  bool shares_rows = false;   // sequence parallelism over more than one rank: P < T
  bool overlap = true;        // other parts run beside collectives
  bool capped = false;        // scores of attention are
  bool has_aux_loss = false;  // routers' losses have a coefficient
  bool has_z_loss = false;
  bool on_device = false;  // kernels are an accelerator's
  model::Moe moe = {};

  // REQUIRES: sizes.tp and etp divide what they cut.
  Sizes(const model::ModelConfig& config, const model::UnitSizes& sizes);

  std::int64_t operator[](Dim dim) const { return dims[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](Dim dim) { return dims[static_cast<std::size_t>(dim)]; }
  bool is_narrow() const { return width < wide; }
  // Tokens of a sequence in these rows: of kN the whole one.
  std::int64_t seq_of(Dim rows) const { return rows == Dim::kN ? seq * cp : seq; }
  // Of parts that see whole sequences and a share of the heads.
  Sizes of_whole_sequences() const;
  std::int64_t width_of(Elem elem) const;
  std::int64_t elements(const Value& value) const;
  std::int64_t bytes(const Value& value) const { return elements(value) * width_of(value.elem); }
};

}  // namespace lockstep::parts
