// A process of Python that encodes and decodes text by Hugging Face's `tokenizers` (tokenizer.py,
// which is text in this program).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::cli {

// Ends its process when it ends. Movable. One thread.
class Helper {
 public:
  // For the tokenizer in `file`. LS0602 where python3 or the package is missing, or where the
  // package cannot read the file.
  static Result<Helper> start(const std::string& file);
  Helper(Helper&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        socket_(std::exchange(other.socket_, -1)),
        unread_(std::move(other.unread_)) {}
  Helper& operator=(Helper&&) = delete;
  ~Helper();

  // LS0602 where it refuses, or is not there any more.
  Result<Json> ask(const std::string& word, Json value);

 private:
  Helper() = default;
  Result<Json> answer();
  Result<std::string> line();

  pid_t pid_ = -1;
  int socket_ = -1;
  std::string unread_;
};

}  // namespace lockstep::cli
