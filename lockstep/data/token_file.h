// A file of tokens, whatever its format: a Megatron pair or an llm.c file. The tokens are mapped;
// opening reads the index alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/mapped_file.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/data/token_index.h"

namespace lockstep::data {

// The token files of llm.c: a header of 256 numbers (i32: magic, version, tokens, zeros), then the
// tokens. Magic 20240520 with version 1 holds u16, magic 20240801 with version 7 holds u32.
inline constexpr std::size_t kLlmcHeaderBytes = 1024;

struct LlmcHeader {
  TokenType type = TokenType::kU16;
  std::int64_t tokens = 0;
};

// Refuses (LS0801) unknown versions and a count that is not that of the bytes.
Result<LlmcHeader> read_llmc_header(std::span<const std::byte> bytes, const std::string& name);

// Any thread may use it. The files must not change while it lives. REQUIRES of all: numbers within
// bounds.
class TokenFile {
 public:
  // `name` is the prefix of a Megatron pair, or its .bin or .idx, or an llm.c file, which ends in
  // .bin and is a single document. Refuses what TokenIndex and read_llmc_header do, and what cannot
  // be read.
  static Result<TokenFile> open(const std::string& name);

  TokenFile(TokenFile&&) = default;
  TokenFile& operator=(TokenFile&&) = delete;

  const std::string& name() const { return name_; }
  std::string_view format() const;  // "Megatron", "llm.c"
  TokenType type() const { return type_; }
  std::int64_t pieces() const { return lengths().size(); }
  std::int64_t documents() const { return index_ ? index_->documents() : 1; }
  std::int64_t tokens() const { return tokens_; }
  Bytes bytes() const;  // of the tokens

  PieceLengths lengths() const;
  std::int64_t document_of(std::int64_t piece) const;
  std::int64_t first_piece(std::int64_t document) const;  // of documents(), pieces()
  std::int64_t tokens_before(std::int64_t piece) const;   // of pieces(), tokens()

  // Tokens `offset` and following of a piece.
  void read(std::int64_t piece, std::int64_t offset, std::span<std::int64_t> tokens) const;
  // The tokens from number `first` of the file on, across pieces.
  void read_all(std::int64_t first, std::span<std::int64_t> tokens) const;
  // They will be read soon: starts to bring them from the disk.
  void expect(std::int64_t piece, std::int64_t offset, std::int64_t count) const;

 private:
  TokenFile(std::string name, MappedFile bin) : name_(std::move(name)), bin_(std::move(bin)) {}

  std::string name_;
  MappedFile bin_;
  std::size_t data_begin_ = 0;  // byte of bin_ where tokens begin
  TokenType type_ = TokenType::kU16;
  std::int64_t tokens_ = 0;
  std::optional<TokenIndex> index_;        // of a Megatron pair
  std::vector<std::int32_t> only_length_;  // of an llm.c file
};

}  // namespace lockstep::data
