#include "lockstep/data/token_file.h"

#include <cstring>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

struct Kind {
  std::int32_t magic;
  std::int32_t version;
  TokenType type;
};
constexpr Kind kKinds[] = {{20240520, 1, TokenType::kU16}, {20240801, 7, TokenType::kU32}};

std::int32_t word(std::span<const std::byte> bytes, std::size_t number) {
  std::int32_t value;
  std::memcpy(&value, bytes.data() + number * sizeof value, sizeof value);
  return value;
}

const Kind* kind_of(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(std::int32_t)) return nullptr;
  for (const Kind& kind : kKinds)
    if (kind.magic == word(bytes, 0)) return &kind;
  return nullptr;
}

// "corpus" of "corpus.bin" and "corpus.idx".
std::string prefix_of(const std::string& name) {
  for (const std::string_view ending : {".bin", ".idx"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

}  // namespace

Result<TokenFile> TokenFile::open(const std::string& name) {
  const std::string prefix = prefix_of(name);
  Result<MappedFile> bin = MappedFile::open(prefix + ".bin");
  if (!bin.ok()) {
    Error error = bin.error();
    if (name != prefix + ".bin")
      error.help = join_parts("`", name, "` is taken for the prefix of ", prefix, ".bin and ",
                              prefix, ".idx");
    return error;
  }
  TokenFile file(name, *std::move(bin));
  const std::span<const std::byte> bytes = file.bin_.bytes();
  if (name.ends_with(".bin") && kind_of(bytes) != nullptr) {
    const LlmcHeader header = LS_TRY(read_llmc_header(bytes, name));
    file.type_ = header.type;
    file.tokens_ = header.tokens;
    file.data_begin_ = kLlmcHeaderBytes;
    file.only_length_ = {static_cast<std::int32_t>(header.tokens)};
    return file;
  }
  TokenIndex index = LS_TRY(TokenIndex::open(prefix + ".idx", std::ssize(bytes)));
  file.type_ = index.type();
  file.tokens_ = index.tokens();
  file.index_ = std::move(index);
  return file;
}

std::string_view TokenFile::format() const { return index_ ? "Megatron" : "llm.c"; }

Bytes TokenFile::bytes() const { return {tokens_ * width_of(type_)}; }

PieceLengths TokenFile::lengths() const {
  return index_ ? index_->lengths() : PieceLengths(std::as_bytes(std::span(only_length_)));
}

std::int64_t TokenFile::document_of(std::int64_t piece) const {
  return index_ ? index_->document_of(piece) : 0;
}

std::int64_t TokenFile::first_piece(std::int64_t document) const {
  return index_ ? index_->first_piece(document) : document;
}

std::int64_t TokenFile::tokens_before(std::int64_t piece) const {
  return index_ ? index_->tokens_before(piece) : piece * tokens_;
}

void TokenFile::read(std::int64_t piece, std::int64_t offset,
                     std::span<std::int64_t> tokens) const {
  read_all(tokens_before(piece) + offset, tokens);
}

void TokenFile::read_all(std::int64_t first, std::span<std::int64_t> tokens) const {
  LS_CHECK(first >= 0 && first + std::ssize(tokens) <= tokens_, "token ", first, " of ", tokens_,
           " in ", name_);
  widen(type_, bin_.bytes().data() + data_begin_ + first * width_of(type_), tokens);
}

void TokenFile::expect(std::int64_t piece, std::int64_t offset, std::int64_t count) const {
  const std::int64_t width = width_of(type_), first = tokens_before(piece) + offset;
  bin_.expect(data_begin_ + first * width, count * width);
}

Result<LlmcHeader> read_llmc_header(std::span<const std::byte> bytes, const std::string& name) {
  const auto wrong = [&](std::size_t at, const std::string& what) {
    return Error{Code::kBadTokenFile, join_parts("`", name, "`, byte ", at, ": ", what),
                 "make the file again"};
  };
  const Kind* kind = kind_of(bytes);
  if (kind == nullptr) return wrong(0, "it does not begin like an llm.c file");
  if (bytes.size() < kLlmcHeaderBytes)
    return wrong(bytes.size(),
                 join_parts("the file ends; its header has ", kLlmcHeaderBytes, " bytes"));
  if (word(bytes, 1) != kind->version)
    return wrong(4, join_parts("version ", word(bytes, 1), "; files that begin with ", kind->magic,
                               " have version ", kind->version));
  const LlmcHeader header{kind->type, word(bytes, 2)};
  const auto room = static_cast<std::int64_t>(bytes.size() - kLlmcHeaderBytes);
  if (header.tokens < 0 || header.tokens * width_of(header.type) != room)
    return wrong(8, join_parts("it says ", header.tokens, " tokens of ", width_of(header.type),
                               " bytes, but ", room, " bytes follow its header"));
  return header;
}

}  // namespace lockstep::data
