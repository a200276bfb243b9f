#include "lockstep/data/llmc_file.h"

#include <cstring>

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

}  // namespace

bool looks_like_llmc(std::span<const std::byte> bytes) { return kind_of(bytes) != nullptr; }

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
