#include "lockstep/generate/text_stream.h"

#include <algorithm>

namespace lockstep::generate {
namespace {

// Bytes at the end that begin a code point whose others are still to come.
std::size_t incomplete(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;  // not the first of its code point
    const std::size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
    return length > n ? n : 0;
  }
  return 0;
}

// The longest end of `text` that `stop` begins with.
std::size_t begun(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size()); n > 0; --n)
    if (text.ends_with(stop.substr(0, n))) return n;
  return 0;
}

}  // namespace

std::string TextStream::feed(std::string_view bytes) {
  if (stopped_) return {};
  held_ += bytes;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string text = show(first);
    held_.clear();
    return text;
  }
  std::size_t back = incomplete(held_);
  for (const std::string& stop : stops_) back = std::max(back, begun(held_, stop));
  return show(held_.size() - back);
}

std::string TextStream::finish() { return show(held_.size()); }

std::string TextStream::show(std::size_t count) {
  std::string text = held_.substr(0, count);
  held_.erase(0, count);
  shown_ += text;
  return text;
}

}  // namespace lockstep::generate
