// Digests of bytes. XXH3 finds accidents (a flipped bit, two ranks with different programs) at
// memory speed; SHA-256 also resists forgery and is what other tools print. Each result is the same
// on every machine. One-shot functions may be called by any thread; a stream belongs to one thread
// at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;  // of xxhash.h

namespace lockstep {

using ByteSpan = std::span<const std::byte>;

inline ByteSpan as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

std::uint64_t xxh3_64(ByteSpan bytes);
inline std::uint64_t xxh3_64(std::string_view text) { return xxh3_64(as_byte_span(text)); }
Hash128 xxh3_128(ByteSpan bytes);
inline Hash128 xxh3_128(std::string_view text) { return xxh3_128(as_byte_span(text)); }

// The same digests over bytes that come in pieces; how they are cut makes no difference.
class Xxh3 {
 public:
  Xxh3();
  void update(ByteSpan bytes);
  void update(std::string_view text) { update(as_byte_span(text)); }

  // Of everything so far; more may follow.
  std::uint64_t digest64() const;
  Hash128 digest128() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

using Sha256Digest = std::array<std::byte, 32>;

// FIPS 180-4. Written here because no dependency of the project offers it.
Sha256Digest sha256(ByteSpan bytes);
inline Sha256Digest sha256(std::string_view text) { return sha256(as_byte_span(text)); }

// Lower case, most significant digit first; numbers are padded to their full width.
std::string to_hex(ByteSpan bytes);
std::string to_hex(std::uint64_t number);
std::string to_hex(const Hash128& hash);

}  // namespace lockstep
