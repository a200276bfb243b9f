#include "lockstep/checkpoint/staging.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {

Staging::Staging(std::int64_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t size =
      (static_cast<std::size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
  if (size == 0) return;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)));
  if (data_ == nullptr)
    throw WorldError({Code::kUnsuitableEnvironment,
                      "no memory for a copy of " + std::to_string(bytes) + " bytes of state",
                      "save without it is not possible; use more ranks or a sharded layout"});
  ::madvise(data_.get(), size, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, size);
}

void Staging::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace lockstep::checkpoint
