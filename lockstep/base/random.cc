#include "lockstep/base/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/vector_clones.h"

namespace lockstep {
namespace {

// As given in the paper.
constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9;  // golden ratio
constexpr std::uint32_t kKeyStep1 = 0xBB67AE85;  // sqrt(3) - 1
constexpr int kRounds = 10;

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

constexpr std::uint64_t join(std::uint32_t lo, std::uint32_t hi) {
  return std::uint64_t{hi} << 32 | lo;
}

constexpr double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double box_muller(std::uint64_t radius_bits, std::uint64_t angle_bits) {
  const double radius = std::sqrt(-2 * std::log(1 - unit_interval(radius_bits)));
  return radius * std::cos(2 * std::numbers::pi * unit_interval(angle_bits));
}

constexpr std::size_t kBlocksAtOnce = 256;  // what a core's first cache holds
using Blocks = std::array<std::array<std::uint32_t, kBlocksAtOnce>, 4>;

// philox4x32 of the indices from `first` on, its rounds outside: so they become vectors of blocks.
LS_VECTOR_CLONES void many_blocks(std::uint64_t first, std::uint64_t stream, PhiloxKey key,
                                  Blocks& c) {
  for (std::size_t i = 0; i < kBlocksAtOnce; ++i) {
    c[0][i] = low(first + i), c[1][i] = high(first + i);
    c[2][i] = low(stream), c[3][i] = high(stream);
  }
  for (int round = 0; round < kRounds; ++round, key[0] += kKeyStep0, key[1] += kKeyStep1)
    for (std::size_t i = 0; i < kBlocksAtOnce; ++i) {
      const std::uint64_t product0 = kMultiplier0 * c[0][i], product1 = kMultiplier1 * c[2][i];
      c[0][i] = high(product1) ^ c[1][i] ^ key[0], c[1][i] = low(product1);
      c[2][i] = high(product0) ^ c[3][i] ^ key[1], c[3][i] = low(product0);
    }
}

}  // namespace

PhiloxBlock philox4x32(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += kKeyStep0;
    key[1] += kKeyStep1;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name)
    : key_{low(seed), high(seed)}, stream_(xxh3_64(name)) {}

PhiloxBlock RandomStream::block(std::uint64_t index) const {
  return philox4x32({low(index), high(index), low(stream_), high(stream_)}, key_);
}

std::uint64_t RandomStream::bits(std::uint64_t index) const {
  const PhiloxBlock b = block(index);
  return join(b[0], b[1]);
}

double RandomStream::uniform(std::uint64_t index) const { return unit_interval(bits(index)); }

std::uint64_t RandomStream::below(std::uint64_t bound, std::uint64_t index) const {
  LS_CHECK(bound > 0);
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(Wide{bits(index)} * bound >> 64);
}

double RandomStream::normal(std::uint64_t index) const {
  const PhiloxBlock b = block(index);
  return box_muller(join(b[0], b[1]), join(b[2], b[3]));
}

void RandomStream::normals(std::uint64_t first, std::span<double> out) const {
  Blocks c;
  for (std::size_t at = 0; at < out.size(); at += kBlocksAtOnce) {
    many_blocks(first + at, stream_, key_, c);
    const std::size_t n = std::min(kBlocksAtOnce, out.size() - at);
    for (std::size_t i = 0; i < n; ++i)
      out[at + i] = box_muller(join(c[0][i], c[1][i]), join(c[2][i], c[3][i]));
  }
}

}  // namespace lockstep
