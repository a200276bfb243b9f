// What numpy.random.RandomState draws, bit for bit: MT19937 (Matsumoto, Nishimura, "Mersenne twister", 1998),
// and whole numbers by masking and rejecting, as numpy's shuffle takes them. Megatron's order of samples is
// made of it; everything else of ours draws from base/random.h.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace lockstep::data {

// One thread at a time.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : words_(seed) {}

  // A whole number from 0 to `last`, both included.
  std::uint32_t up_to(std::uint32_t last) {
    if (last == 0) return 0;
    const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(last);
    std::uint32_t word = 0;
    do word = static_cast<std::uint32_t>(words_()) & mask;
    while (word > last);
    return word;
  }

  // numpy's shuffle of an array of one dimension. REQUIRES: at most 2^32 items.
  template <class Item>
  void shuffle(std::span<Item> items) {
    // Partners depend on no item, so some are drawn ahead: their cache lines come meanwhile.
    constexpr std::size_t kAhead = 32;
    std::array<std::uint32_t, kAhead> partners;
    for (std::size_t last = items.size(); last > 1;) {
      const std::size_t count = std::min(kAhead, last - 1);
      for (std::size_t i = 0; i < count; ++i) {
        partners[i] = up_to(static_cast<std::uint32_t>(last - 1 - i));
        __builtin_prefetch(&items[partners[i]], 1);
      }
      for (std::size_t i = 0; i < count; ++i) std::swap(items[--last], items[partners[i]]);
    }
  }

 private:
  std::mt19937 words_;
};

}  // namespace lockstep::data
