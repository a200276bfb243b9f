#include "lockstep/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::files {
namespace {

// "process 4711 on host-3".
std::string own_name() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return "process " + std::to_string(::getpid()) + " on " + host;
}

std::string owner_in(int fd) {
  char text[300] = {};
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  const std::string owner(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return owner.substr(0, owner.find('\n'));
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const auto fail = [&](const char* what) -> IoError {
    return IoError({Code::kDiskFailed,
                    "cannot " + std::string(what) + " `" + path +
                        "`: " + std::generic_category().message(errno),
                    "runs are kept apart by a lock there (flock)"});
  };
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (fd < 0) throw fail("open");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw fail("lock");
    const std::string owner = owner_in(fd);
    return Error{Code::kConflict,
                 "`" + folder + "` is in use by " + (owner.empty() ? "another run" : owner),
                 "wait for that run or end it, or save to another folder"};
  }
  const std::string owner = own_name() + "\n";
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, owner.data(), owner.size(), 0) < 0)
    throw fail("write to");
  return FolderLock(std::move(fd));
}

}  // namespace lockstep::files
