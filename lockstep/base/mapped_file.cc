#include "lockstep/base/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/base/descriptor.h"

namespace lockstep {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const InputFile file = LS_TRY(InputFile::open(path));
  MappedFile made;
  made.path_ = path;
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return made;
  void* const start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (start == MAP_FAILED)
    return Error{Code::kFileUnreadable, "cannot read `" + path + "`: " + system_reason()};
  made.start_ = {static_cast<std::byte*>(start), Unmap{size}};  // stays when the file is closed
  return made;
}

void MappedFile::Unmap::operator()(std::byte* start) const { ::munmap(start, size); }

void MappedFile::expect(std::size_t first, std::size_t count) const {
  if (first >= bytes().size()) return;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = first / page * page;  // the mapping itself begins at a page
  const std::size_t end = first + std::min(count, bytes().size() - first);
  // Only advice: a system that does not take it reads later.
  ::madvise(start_.get() + begin, end - begin, MADV_WILLNEED);
}

void forget_pages(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(part.data()) % page;
  if (part.size() < before + page) return;
  const auto pages = part.subspan(before, (part.size() - before) / page * page);
  // A hint: where it is not taken, the kernel finds the memory when it needs some.
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
}

}  // namespace lockstep
