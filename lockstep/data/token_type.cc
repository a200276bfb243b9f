#include "lockstep/data/token_type.h"

#include <bit>
#include <cstring>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// Calls `work` with a value of the type that `type` names.
template <class Work>
auto with_type(TokenType type, Work work) {
  switch (type) {
    case TokenType::kU8:  // NOLINT(bugprone-branch-clone): the types of the values differ
      return work(std::uint8_t());
    case TokenType::kI8:
      return work(std::int8_t());
    case TokenType::kI16:
      return work(std::int16_t());
    case TokenType::kU16:
      return work(std::uint16_t());
    case TokenType::kI32:
      return work(std::int32_t());
    case TokenType::kU32:
      return work(std::uint32_t());
    case TokenType::kI64:
      break;
  }
  return work(std::int64_t());
}

struct CodeOfType {
  std::uint8_t code;
  TokenType type;
};
constexpr CodeOfType kCodes[] = {{1, TokenType::kU8},  {2, TokenType::kI8},  {3, TokenType::kI16},
                                 {4, TokenType::kI32}, {5, TokenType::kI64}, {8, TokenType::kU16}};

}  // namespace

std::int64_t width_of(TokenType type) {
  return with_type(type, [](auto token) { return static_cast<std::int64_t>(sizeof token); });
}

std::string_view to_text(TokenType type) {
  constexpr std::string_view kNames[] = {"u8", "i8", "i16", "u16", "i32", "u32", "i64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::optional<std::uint8_t> code_of(TokenType type) {
  for (const CodeOfType& row : kCodes)
    if (row.type == type) return row.code;
  return std::nullopt;
}

std::optional<TokenType> type_of_code(std::uint8_t code) {
  for (const CodeOfType& row : kCodes)
    if (row.code == code) return row.type;
  return std::nullopt;
}

void widen(TokenType type, const std::byte* from, std::span<std::int64_t> to) {
  with_type(type, [&](auto token) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::memcpy(&token, from + i * sizeof token, sizeof token);
      to[i] =
          static_cast<std::int64_t>(token);  // NOLINT(bugprone-signed-char-misuse): i8 has a sign
    }
  });
}

bool narrow(TokenType type, std::span<const std::int64_t> from, std::byte* to) {
  return with_type(type, [&](auto token) {
    bool fits = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
      fits &= std::in_range<decltype(token)>(from[i]);
      token = static_cast<decltype(token)>(from[i]);
      std::memcpy(to + i * sizeof token, &token, sizeof token);
    }
    return fits;
  });
}

}  // namespace lockstep::data
