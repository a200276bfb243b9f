#include "lockstep/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::files {
namespace {

std::string reason(int number) { return std::generic_category().message(number); }

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Code::kFileUnreadable, "cannot read `" + path + "`: " + why};
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return refused(reason(errno));
  InputFile made(path, file, 0);
  struct stat status = {};
  if (::fstat(file, &status) != 0) return refused(reason(errno));
  if (!S_ISREG(status.st_mode)) return refused("it is not a regular file");
  made.size_ = status.st_size;
  return made;
}

InputFile::InputFile(std::string path, int file, std::int64_t size)
    : path_(std::move(path)), file_(file), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
}

bool InputFile::read(std::int64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(file_, into.data(), into.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw IoError({Code::kDiskFailed, "cannot read `" + path_ + "`: " + reason(errno)});
    if (got == 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return true;
}

}  // namespace lockstep::files
