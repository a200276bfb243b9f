#include "lockstep/data/byte_text.h"

#include <algorithm>

namespace lockstep::data {

Result<void> ByteDocuments::feed(std::string_view text) {
  for (const char letter : text) {
    document_.push_back(static_cast<unsigned char>(letter));
    if (letter != '\n') continue;
    LS_TRY(end_line());
  }
  return {};
}

Result<void> ByteDocuments::end_file() {
  LS_TRY(end_line());
  return end_document();
}

// Spaces and a carriage return do not make a line less blank.
Result<void> ByteDocuments::end_line() {
  const bool is_blank =
      std::all_of(document_.begin() + static_cast<std::ptrdiff_t>(line_begin_), document_.end(),
                  [](std::int64_t byte) {
                    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
                  });
  if (is_blank && end_ == DocumentEnd::kBlankLine) {
    document_.resize(line_begin_);
    return end_document();
  }
  line_begin_ = document_.size();
  return {};
}

Result<void> ByteDocuments::end_document() {
  line_begin_ = 0;
  if (document_.empty()) return {};
  document_.push_back(kByteEnd);
  const Result<void> done = sink_(document_);
  document_.clear();
  return done;
}

}  // namespace lockstep::data
