// A file's bytes, mapped and read-only: pages come from disk when they are first touched, so
// opening a file of any size is quick and costs no memory of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/result.h"

namespace lockstep {

// Owns the mapping. Movable. Any thread may read. A file that is cut short while it is mapped ends
// the process at the first touch of what is gone (SIGBUS), so map only what nobody rewrites in
// place: finished files that are replaced by rename.
class MappedFile {
 public:
  MappedFile() = default;  // no file, no bytes
  // Refuses what is not a regular file that can be read (LS0004), with the system's reason.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const {
    return {start_.get(), start_ == nullptr ? 0 : start_.get_deleter().size};
  }
  std::string_view text() const {  // the same
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }
  const std::string& path() const { return path_; }

  // These bytes will be read soon: starts to bring them from the disk. What lies beyond the file is
  // passed over.
  void expect(std::size_t first, std::size_t count) const;

 private:
  struct Unmap {
    std::size_t size;
    void operator()(std::byte* start) const;
  };

  std::string path_;
  std::unique_ptr<std::byte, Unmap> start_;
};

// Gives back the memory of the pages that lie wholly inside `part` of a MappedFile's bytes; whoever
// touches them later reads them from the file again. So a file larger than memory can be walked
// through.
void forget_pages(std::span<const std::byte> part);

}  // namespace lockstep
