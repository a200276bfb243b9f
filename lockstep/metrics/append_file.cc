#include "lockstep/metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/check.h"

namespace lockstep::metrics {
namespace {

Error unwritable(const std::string& path) {
  return {Code::kUnsuitableEnvironment,
          join_parts("cannot write `", path, "`: ", std::strerror(errno)),
          "is the disk full, or the directory missing or read-only?"};
}

}  // namespace

Result<AppendFile> AppendFile::open(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
  if (fd < 0 && errno == EEXIST)
    return Error{Code::kBadMetrics, join_parts("`", path, "` is there already"),
                 "it tells of an earlier run: resume that one, or name another directory"};
  if (fd < 0) return unwritable(path);
  return AppendFile(path, fd);
}

Result<AppendFile> AppendFile::create(const std::string& path) { return open(path, O_EXCL); }
Result<AppendFile> AppendFile::replace(const std::string& path) { return open(path, O_TRUNC); }
Result<AppendFile> AppendFile::extend(const std::string& path) { return open(path, 0); }

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

// All of it or nothing, so that a full disk leaves no half line behind for the next one.
Result<void> AppendFile::add(std::string_view bytes) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Error error = unwritable(path_);
      if (before >= 0) (void)!::ftruncate(fd_, before);
      return error;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> AppendFile::sync() {
  if (::fsync(fd_) != 0) return unwritable(path_);
  return {};
}

}  // namespace lockstep::metrics
