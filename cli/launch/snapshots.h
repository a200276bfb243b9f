// Where ranks leave copies of their state that outlive them: a folder of checkpoints in memory,
// which lives as long as the launcher.
#pragma once

#include <string>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {

// Movable.
class Snapshots {
 public:
  // Two are kept, so that a damaged one has another behind it, while a third is written.
  static constexpr int kCopies = 3;

  // A folder of its own in `parent`, for copies of so many bytes. Removes folders there that
  // launchers of the same user have left who were killed. Refuses (LS0602) a `parent` in which it
  // cannot be made, that has no room for the copies, or that is on a disk.
  static Result<Snapshots> make(const std::string& parent, Bytes each);
  Snapshots(Snapshots&& other) noexcept
      : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}
  Snapshots& operator=(Snapshots&&) = delete;
  ~Snapshots();

  const std::string& path() const { return path_; }

 private:
  Snapshots(std::string path, Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  Descriptor lock_;  // held while the launcher lives
};

}  // namespace lockstep::cli
