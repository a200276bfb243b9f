// The index of a Megatron pair (PREFIX.idx). All numbers little-endian, at no alignment:
//
//   offset 0     9 bytes  "MMIDIDX" and two zeros     26       u64      D: documents + 1
//          9     u64      version 1                   34       i32[S]   tokens of each piece
//          17    u8       type of the tokens          34+4S    i64[S]   its byte in PREFIX.bin
//          18    u64      S: pieces                   34+12S   i64[D]   first piece of each, then S
//
// A piece is what Megatron calls a sequence there: a document is one piece, or several that a
// tokenizer kept apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/mapped_file.h"
#include "lockstep/base/result.h"

namespace lockstep::data {

// The types in which token files hold their ids, little-endian.
enum class TokenType : std::uint8_t { kU8, kI8, kI16, kU16, kI32, kU32, kI64 };

std::int64_t width_of(TokenType type);     // bytes
std::string_view to_text(TokenType type);  // "u16"

// The number a Megatron index writes for it. Nothing for u32, which it does not have; and for
// numbers that stand for reals or for nothing.
std::optional<std::uint8_t> code_of(TokenType type);
std::optional<TokenType> type_of_code(std::uint8_t code);

// to[i] = token i of those at `from`. REQUIRES: to.size() tokens there; any alignment will do.
void widen(TokenType type, const std::byte* from, std::span<std::int64_t> to);

// The reverse. False, with nothing known about the bytes at `to`, when a token does not fit the
// type.
bool narrow(TokenType type, std::span<const std::int64_t> from, std::byte* to);

// Numbers of tokens, one for each piece, as they lie in a file. Refers to bytes of others.
class PieceLengths {
 public:
  PieceLengths() = default;
  // REQUIRES: whole numbers of 4 bytes, none negative.
  explicit PieceLengths(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size() / kWidth); }
  std::int32_t operator[](std::int64_t piece) const;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kWidth = sizeof(std::int32_t);
  std::span<const std::byte> bytes_;
};

// An index that was read. Any thread may use it. REQUIRES of all: numbers within bounds.
class TokenIndex {
 public:
  // Maps the file and reads all of it once. Refuses (LS0801) with file and byte whatever the format
  // forbids or Megatron's writer cannot have written: pieces that leave gaps in PREFIX.bin, overlap
  // or do not end where its `bin_bytes` bytes end; documents that do not ascend; any byte too many
  // or too few; types that are no whole numbers; modes of multimodal files.
  static Result<TokenIndex> open(const std::string& path, std::int64_t bin_bytes);
  // The same of bytes that are in memory and outlive it; messages call them `name`.
  static Result<TokenIndex> parse(std::span<const std::byte> bytes, const std::string& name,
                                  std::int64_t bin_bytes);

  TokenType type() const { return type_; }
  std::int64_t pieces() const { return lengths_.size(); }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  const PieceLengths& lengths() const { return lengths_; }
  // Tokens before the piece in PREFIX.bin; of pieces(), all.
  std::int64_t tokens_before(std::int64_t piece) const;
  std::int64_t first_piece(std::int64_t document) const;  // of documents(), pieces()
  std::int64_t document_of(std::int64_t piece) const;

 private:
  class Reader;

  MappedFile file_;
  TokenType type_ = TokenType::kU16;
  std::int64_t documents_ = 0;
  std::int64_t tokens_ = 0;
  PieceLengths lengths_;
  std::span<const std::byte> offsets_, boundaries_;
};

}  // namespace lockstep::data
