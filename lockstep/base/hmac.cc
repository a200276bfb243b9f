#include "lockstep/base/hmac.h"

#include <string>

namespace lockstep {

Sha256Digest hmac_sha256(std::string_view key, std::string_view text) {
  constexpr std::size_t kKeyBlock = 64;
  const auto characters = [](const Sha256Digest& digest) {
    return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
  };
  std::string inner(key.size() > kKeyBlock ? characters(sha256(key)) : std::string(key));
  inner.resize(kKeyBlock, '\0');
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + characters(sha256(inner.append(text))));
}

bool equal(const Sha256Digest& a, const Sha256Digest& b) {
  auto difference = std::byte{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace lockstep
