#include "lockstep/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

Error unreadable(const std::string& path, const std::string& reason) {
  return {Code::kFileUnreadable, "cannot read `" + path + "`: " + reason};
}

std::string system_reason() { return std::generic_category().message(errno); }

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return unreadable(path, system_reason());
  struct stat status = {};
  std::string trouble;
  void* start = nullptr;
  if (::fstat(file, &status) != 0)
    trouble = system_reason();
  else if (!S_ISREG(status.st_mode))
    trouble = "it is not a regular file";
  else if (status.st_size > 0) {
    start =
        ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) trouble = system_reason();
  }
  ::close(file);  // the mapping stays
  if (!trouble.empty()) return unreadable(path, trouble);
  const auto size = start == nullptr ? 0 : static_cast<std::size_t>(status.st_size);
  return MappedFile(path, {static_cast<const std::byte*>(start), size});
}

void MappedFile::expect(std::size_t first, std::size_t count) const {
  if (first >= bytes_.size()) return;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = first / page * page;  // the mapping itself begins at a page
  const std::size_t end = first + std::min(count, bytes_.size() - first);
  // Only advice: a system that does not take it reads later.
  ::madvise(const_cast<std::byte*>(bytes_.data()) +
                begin,  // NOLINT(cppcoreguidelines-pro-type-const-cast)
            end - begin, MADV_WILLNEED);
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  // munmap takes what mmap gave, which was never const.
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void forget_pages(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(part.data()) % page;
  if (part.size() < before + page) return;
  const std::span<const std::byte> pages =
      part.subspan(before, (part.size() - before) / page * page);
  // A hint: where it is not taken, the kernel finds the memory when it needs some.
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
}

}  // namespace lockstep
