#include "lockstep/base/hash.h"

#include <xxhash.h>
#if LOCKSTEP_XXHASH_DISPATCH
// Takes the place of XXH3's functions: those of the widest vectors that this processor has. The
// plain ones are compiled for every x86-64.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <bit>

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

// FIPS 180-4, 5.3.3 and 4.2.2: the first 32 bits of the fractions of the square roots of the first
// 8 primes and of the cube roots of the first 64.
using Sha256State = std::array<std::uint32_t, 8>;
constexpr Sha256State kInitialState = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t kBlock = 64;

Hash128 from_xxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

std::uint32_t load_big_endian(const std::byte* from) {
  return std::to_integer<std::uint32_t>(from[0]) << 24 |
         std::to_integer<std::uint32_t>(from[1]) << 16 |
         std::to_integer<std::uint32_t>(from[2]) << 8 | std::to_integer<std::uint32_t>(from[3]);
}

template <class Word>
void store_big_endian(Word word, std::byte* to) {
  for (std::size_t i = 0; i < sizeof(Word); ++i)
    to[i] = static_cast<std::byte>(word >> 8 * (sizeof(Word) - 1 - i) & 0xff);
}

// Names of FIPS 180-4, 6.2.2.
void absorb(Sha256State& state, const std::byte* block) {
  using std::rotr;
  std::array<std::uint32_t, 64> w;
  for (std::size_t t = 0; t < 16; ++t) w[t] = load_big_endian(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t sum1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t t1 = h + sum1 + choice + kRoundConstants[t] + w[t];
    const std::uint32_t sum0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + sum0 + majority;
  }
  const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < mixed.size(); ++i) state[i] += mixed[i];
}

}  // namespace

std::uint64_t xxh3_64(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
Hash128 xxh3_128(ByteSpan bytes) { return from_xxh(XXH3_128bits(bytes.data(), bytes.size())); }

void Xxh3::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

// Reset and update are the same for both widths of XXH3; only the digest differs.
Xxh3::Xxh3() : state_(XXH3_createState()) {
  LS_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK);
}

void Xxh3::update(ByteSpan bytes) {
  LS_CHECK(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
}

std::uint64_t Xxh3::digest64() const { return XXH3_64bits_digest(state_.get()); }
Hash128 Xxh3::digest128() const { return from_xxh(XXH3_128bits_digest(state_.get())); }

Sha256Digest sha256(ByteSpan bytes) {
  Sha256State state = kInitialState;
  const std::uint64_t num_bits = bytes.size() * 8;
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) absorb(state, bytes.data());
  // One 1 bit, zeros up to 8 bytes before a block ends, then the length in bits.
  std::array<std::byte, 2 * kBlock> end{};
  std::ranges::copy(bytes, end.begin());
  end[bytes.size()] = std::byte{0x80};
  const std::size_t end_bytes = bytes.size() + 9 > kBlock ? 2 * kBlock : kBlock;
  store_big_endian(num_bits, end.data() + end_bytes - 8);
  for (std::size_t at = 0; at < end_bytes; at += kBlock) absorb(state, end.data() + at);
  Sha256Digest digest;
  for (std::size_t i = 0; i < state.size(); ++i) store_big_endian(state[i], digest.data() + 4 * i);
  return digest;
}

std::string to_hex(ByteSpan bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<std::size_t>(b) >> 4];
    text += kDigits[std::to_integer<std::size_t>(b) & 15];
  }
  return text;
}

std::string to_hex(std::uint64_t number) {
  std::array<std::byte, sizeof number> bytes;
  store_big_endian(number, bytes.data());
  return to_hex(ByteSpan(bytes));
}

std::string to_hex(const Hash128& hash) { return to_hex(hash.high) + to_hex(hash.low); }

}  // namespace lockstep
