// Open files of the operating system.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/result.h"

namespace lockstep {

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

struct RegularFile {
  Descriptor file;
  std::int64_t size = 0;  // bytes, when it was opened
};

// For reading. Refuses what is not a regular file that can be read (LS0004), with the system's reason.
Result<RegularFile> open_regular(const std::string& path);

}  // namespace lockstep
