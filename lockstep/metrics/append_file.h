// A file that grows: what is added is with the operating system when add() returns, so that it outlives
// the process. One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/result.h"

namespace lockstep::metrics {

class AppendFile {
 public:
  static Result<AppendFile> create(const std::string& path);   // refuses one that is there
  static Result<AppendFile> replace(const std::string& path);  // empties one that is there
  static Result<AppendFile> extend(const std::string& path);   // goes on at its end

  AppendFile(AppendFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  const std::string& path() const { return path_; }
  Result<void> add(std::string_view bytes);
  Result<void> sync();  // until the disk has it

 private:
  static Result<AppendFile> open(const std::string& path, int flags);
  AppendFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

}  // namespace lockstep::metrics
