#include "lockstep/base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

std::string system_reason() { return std::generic_category().message(errno); }

Result<InputFile> InputFile::open(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Code::kFileUnreadable, "cannot read `" + path + "`: " + why};
  };
  InputFile made;
  made.path_ = path;
  // Opening a pipe must not wait for its other end.
  made.file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (made.file_ < 0 || ::fstat(made.file_, &status) != 0) return refused(system_reason());
  if (!S_ISREG(status.st_mode)) return refused("it is not a regular file");
  made.size_ = status.st_size;
  return made;
}

bool InputFile::read(std::int64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(file_, into.data(), into.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw IoError({Code::kDiskFailed, "cannot read `" + path_ + "`: " + system_reason()});
    if (got == 0) return false;
    into = into.subspan(got);
    at += got;
  }
  return true;
}

}  // namespace lockstep
