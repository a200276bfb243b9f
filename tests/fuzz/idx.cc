// Any bytes are an index that holds together, or are refused. The first 8 bytes say how long the
// tokens are.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "lockstep/data/token_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  std::int64_t bin_bytes = 0;
  if (size < sizeof bin_bytes) return 0;
  std::memcpy(&bin_bytes, data, sizeof bin_bytes);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof bin_bytes);
  const auto index = data::TokenIndex::parse(bytes, "fuzz.idx", bin_bytes);
  if (!index.ok()) return index.error().message.empty() ? std::abort(), 0 : 0;
  std::int64_t tokens = 0;
  for (std::int64_t piece = 0; piece < index->pieces(); ++piece) {
    if (index->tokens_before(piece) != tokens) std::abort();
    tokens += index->lengths()[piece];
    const std::int64_t document = index->document_of(piece);
    if (index->first_piece(document) > piece || index->first_piece(document + 1) <= piece)
      std::abort();
  }
  if (tokens != index->tokens() || tokens * width_of(index->type()) != bin_bytes) std::abort();
  return 0;
}
