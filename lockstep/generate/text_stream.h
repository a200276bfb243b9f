// Text that comes piece by piece, cut where tokens end: what of it may be shown already.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::generate {

// Holds back what may become a stop text, and the bytes of a code point of UTF-8 that is not
// complete; bytes that are no UTF-8 pass. One thread.
class TextStream {
 public:
  // REQUIRES: no text in `stops` is empty.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The next bytes; returns those that may be shown. Nothing behind a stop text, nor it, ever is.
  std::string feed(std::string_view bytes);
  // The text is over: the rest.
  std::string finish();
  bool stopped() const { return stopped_; }  // a stop text came

  const std::string& shown() const { return shown_; }  // all that feed() and finish() returned

 private:
  std::string show(std::size_t count);

  std::vector<std::string> stops_;
  std::string held_, shown_;
  bool stopped_ = false;
};

}  // namespace lockstep::generate
