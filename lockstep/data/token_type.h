// The types in which token files hold their ids, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::data {

enum class TokenType : std::uint8_t { kU8, kI8, kI16, kU16, kI32, kU32, kI64 };

std::int64_t width_of(TokenType type);     // bytes
std::string_view to_text(TokenType type);  // "u16"

// The number a Megatron index writes for it. Nothing for u32, which it does not have; and for numbers that
// stand for reals or for nothing.
std::optional<std::uint8_t> code_of(TokenType type);
std::optional<TokenType> type_of_code(std::uint8_t code);

// to[i] = token i of those at `from`. REQUIRES: to.size() tokens there; any alignment will do.
void widen(TokenType type, const std::byte* from, std::span<std::int64_t> to);

// The reverse. False, with nothing known about the bytes at `to`, when a token does not fit the type.
bool narrow(TokenType type, std::span<const std::int64_t> from, std::byte* to);

}  // namespace lockstep::data
