#include "lockstep/base/buffer.h"

#include "lockstep/base/check.h"

namespace lockstep {
namespace {

void check_slice(std::int64_t count, std::int64_t first, std::int64_t num) {
  LS_CHECK(first >= 0 && num >= 0 && first <= count && num <= count - first, num,
           " elements from element ", first, " of ", count);
}

}  // namespace

Buffer Buffer::slice(std::int64_t first, std::int64_t num) const {
  check_slice(count, first, num);
  return {static_cast<std::byte*>(data) + first * static_cast<std::int64_t>(size_of(dtype)), num,
          dtype, device};
}

ConstBuffer ConstBuffer::slice(std::int64_t first, std::int64_t num) const {
  check_slice(count, first, num);
  return {static_cast<const std::byte*>(data) + first * static_cast<std::int64_t>(size_of(dtype)),
          num, dtype, device};
}

}  // namespace lockstep
