// The token files of llm.c: a header of 256 numbers (i32: magic, version, tokens, zeros), then the tokens.
// Magic 20240520 with version 1 holds u16, magic 20240801 with version 7 holds u32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/data/token_type.h"

namespace lockstep::data {

inline constexpr std::size_t kLlmcHeaderBytes = 1024;

struct LlmcHeader {
  TokenType type = TokenType::kU16;
  std::int64_t tokens = 0;
};

// Whether bytes begin with one of the two magic numbers.
bool looks_like_llmc(std::span<const std::byte> bytes);

// Refuses (LS0801) unknown versions and a count that is not that of the bytes.
Result<LlmcHeader> read_llmc_header(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep::data
