// Open files of the operating system.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/result.h"

namespace lockstep {

std::string system_reason();  // what errno means

// Owns a file descriptor and closes it; negative: there is none. Movable.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  operator int() const { return fd_; }  // NOLINT(google-explicit-constructor): as the calls want it
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

// A file to read pieces of. In contrast to a mapping, a file that is cut short while it is read is
// an answer and not the end of the process. Movable. Any thread may read.
class InputFile {
 public:
  // Refuses what is not a regular file that can be read (LS0004), with the system's reason.
  static Result<InputFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // bytes, when it was opened
  const Descriptor& descriptor() const { return file_; }

  // Fills `into` with the bytes from `at` on. False when the file ends before. Throws IoError.
  bool read(std::int64_t at, std::span<std::byte> into) const;

 private:
  std::string path_;
  Descriptor file_;
  std::int64_t size_ = 0;
};

}  // namespace lockstep
