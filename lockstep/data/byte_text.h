// Plain text as tokens, for trying things out: every byte is its own token, and one more ends a
// document.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::data {

inline constexpr std::int64_t kByteEnd = 256;    // end of a document
inline constexpr std::int64_t kByteVocab = 257;  // ids 0 to 255 are bytes

// Where a document ends besides the end of a file.
enum class DocumentEnd : std::uint8_t { kBlankLine, kFile };

// Cuts a stream of text into documents. One thread at a time.
class ByteDocuments {
 public:
  using Sink = std::function<Result<void>(std::span<const std::int64_t>)>;
  // The sink gets each document that has any text, with kByteEnd after it. Blank lines that divide
  // documents belong to none; lines keep their ends.
  ByteDocuments(DocumentEnd end, Sink sink) : end_(end), sink_(std::move(sink)) {}

  // The next bytes; how they are cut makes no difference. What the sink refuses is handed on.
  Result<void> feed(std::string_view text);
  // The file ends, and with it the document.
  Result<void> end_file();

 private:
  Result<void> end_line();
  Result<void> end_document();

  DocumentEnd end_;
  Sink sink_;
  std::vector<std::int64_t> document_;
  std::size_t line_begin_ = 0;  // in document_
};

}  // namespace lockstep::data
