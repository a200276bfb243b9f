// A file to read pieces of. In contrast to a mapping, a file that is cut short while it is read is an
// answer and not the end of the process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/result.h"

namespace lockstep::files {

// Owns the open file. Movable. Any thread may read.
class InputFile {
 public:
  // Refuses what is not a regular file that can be read (LS0004), with the system's reason.
  static Result<InputFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size() const { return opened_.size; }  // when it was opened

  // Fills `into` with the bytes from `at` on. False when the file ends before. Throws IoError.
  bool read(std::int64_t at, std::span<std::byte> into) const;

 private:
  InputFile(std::string path, RegularFile opened)
      : path_(std::move(path)), opened_(std::move(opened)) {}

  std::string path_;
  RegularFile opened_;
};

}  // namespace lockstep::files
