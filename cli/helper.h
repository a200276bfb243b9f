// A process of Python that answers questions by a package of other people's. Its script is text in
// this program (cli/CMakeLists.txt): each line of standard input is a request, an object of one
// word and its value; each of standard output an answer, with `missing` where the package is not
// there and `error` where it refuses.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::cli {

struct HelperScript {
  const char* text;
  const char* package;       // "tokenizers"
  std::string instead = {};  // what to do without it: "--prompt-ids needs none"
};

// Ends its process when it ends. Movable. One thread.
class Helper {
 public:
  // For what is at `path`. LS0602 where python3 or the package is missing, or where the package
  // cannot read it. `script` is copied.
  static Result<Helper> start(const HelperScript& script, const std::string& path);
  Helper(Helper&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        socket_(std::exchange(other.socket_, -1)),
        package_(std::move(other.package_)),
        unread_(std::move(other.unread_)) {}
  Helper& operator=(Helper&&) = delete;
  ~Helper();

  // LS0602 where it refuses, or is not there any more.
  Result<Json> ask(const std::string& word, Json value);

 private:
  explicit Helper(std::string package) : package_(std::move(package)) {}
  Result<Json> answer();
  Result<std::string> line();
  Error lost(const std::string& why) const;

  pid_t pid_ = -1;
  int socket_ = -1;
  std::string package_;
  std::string unread_;
};

}  // namespace lockstep::cli
