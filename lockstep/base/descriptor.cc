#include "lockstep/base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace lockstep {

Result<RegularFile> open_regular(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Code::kFileUnreadable, "cannot read `" + path + "`: " + why};
  };
  // Opening a pipe must not wait for its other end.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (file < 0 || ::fstat(file, &status) != 0)
    return refused(std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) return refused("it is not a regular file");
  return RegularFile{std::move(file), status.st_size};
}

}  // namespace lockstep
