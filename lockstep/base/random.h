// Random numbers without state: every value is a pure function of (seed, stream name, index). A
// rank can draw any piece of a tensor alone, in any order, and gets the bits that every other
// layout gets.
//
// The generator is Philox4x32 with 10 rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011. Everything here is a value; any thread may use it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// A bijection of blocks for each key.
PhiloxBlock philox4x32(PhiloxBlock counter, PhiloxKey key);

// The stream called `name` under `seed`, for example the initial values of one parameter. Streams
// are told apart by a 64-bit hash of the name (XXH3).
//
// Each index owns one Philox block: key = seed, counter = (index, stream hash), low words first.
// bits, uniform and normal read the same block, so draw only one of them per index.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name);

  std::uint64_t bits(std::uint64_t index) const;

  // In [0, 1): one of 2^53 equally spaced values.
  double uniform(std::uint64_t index) const;

  // A whole number in [0, bound), without bias up to bound / 2^64. REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

  // Mean 0, variance 1, |value| <= 8.6: the cosine branch of Box and Muller, "A note on the
  // generation of random normal deviates", 1958. It calls log and cos of the C library, so its last
  // bit is stable for one library on one machine type, not across libraries; bits and uniform are
  // the same everywhere.
  double normal(std::uint64_t index) const;
  // normal() of as many indices, from `first` on: the same bits in half the time.
  void normals(std::uint64_t first, std::span<double> out) const;

 private:
  PhiloxBlock block(std::uint64_t index) const;

  PhiloxKey key_;
  std::uint64_t stream_;
};

}  // namespace lockstep
