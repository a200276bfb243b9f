#include "lockstep/files/input_file.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::files {

Result<InputFile> InputFile::open(const std::string& path) {
  RegularFile opened = LS_TRY(open_regular(path));
  return InputFile(path, std::move(opened));
}

bool InputFile::read(std::int64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(opened_.file, into.data(), into.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw IoError({Code::kDiskFailed,
                     "cannot read `" + path_ + "`: " + std::generic_category().message(errno)});
    if (got == 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return true;
}

}  // namespace lockstep::files
