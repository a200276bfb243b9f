#include "cli/launch/snapshots.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwner = ".launcher";  // locked by the one whose folder it is

std::string prefix() { return join_parts("lockstep-", ::getuid(), "-"); }

Error unsuitable(const std::string& parent, const std::string& what, const std::string& help) {
  return {Code::kUnsuitableEnvironment, join_parts("--snapshot-dir ", parent, ": ", what), help};
}

// Nobody else's: a folder of this user that no launcher holds. One without the file is being made.
void remove_left(const std::string& parent) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(parent, failed)) {
    struct stat status = {};
    const std::string path = entry.path();
    if (!entry.path().filename().string().starts_with(prefix()) ||
        ::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != ::getuid())
      continue;
    const Descriptor lock(::open((path + "/" + kOwner).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, failed);
  }
}

}  // namespace

Result<Snapshots> Snapshots::make(const std::string& parent, Bytes each) {
  remove_left(parent);
  struct statfs room = {};
  if (::statfs(parent.c_str(), &room) != 0)
    return unsuitable(parent, system_reason(), "name a file system in memory: /dev/shm, a tmpfs");
  if (room.f_type != TMPFS_MAGIC && room.f_type != RAMFS_MAGIC)
    return unsuitable(parent, "is not a file system in memory",
                      "name a tmpfs, /dev/shm for example; what lies on a disk is --save's");
  const Bytes needed = {kCopies * each.value},
              free = {static_cast<std::int64_t>(room.f_bavail) * room.f_bsize};
  if (room.f_type == TMPFS_MAGIC && room.f_blocks > 0 && free < needed)
    return unsuitable(parent,
                      join_parts("has ", to_text(free), " free, and ", kCopies,
                                 " copies of the state take ", to_text(needed)),
                      "make it larger (mount -o remount,size=..., --shm-size of a container), name "
                      "another tmpfs, or leave --snapshot-interval out");
  std::string path = (fs::path(parent) / (prefix() + "XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    return unsuitable(parent, "no folder can be made there: " + system_reason(),
                      "name a tmpfs that you may write to");
  Descriptor lock(
      ::open((path + "/" + kOwner).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Snapshots made(std::move(path), std::move(lock));
  if (made.lock_ < 0 || ::flock(made.lock_, LOCK_EX | LOCK_NB) != 0)
    return unsuitable(parent, "a file there cannot be locked: " + system_reason(), "");
  return made;
}

Snapshots::~Snapshots() {
  std::error_code failed;
  if (!path_.empty()) fs::remove_all(path_, failed);
}

}  // namespace lockstep::cli
