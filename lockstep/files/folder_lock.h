// A folder of which one process at a time is the owner. The lock is a descriptor on the file `.lock` in
// it (flock), so that the death of the owner releases it, however it came; the file itself stays.
#pragma once

#include <string>
#include <utility>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/result.h"

namespace lockstep::files {

// Held from take() to destruction. Movable.
class FolderLock {
 public:
  // REQUIRES: the folder exists. LS0106 when another holds it, with its process and host; throws IoError
  // where the file system cannot lock.
  static Result<FolderLock> take(const std::string& folder);

 private:
  explicit FolderLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace lockstep::files
