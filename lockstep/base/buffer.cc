#include "lockstep/base/buffer.h"

#include "lockstep/base/check.h"

namespace lockstep {

Buffer Buffer::slice(std::int64_t first, std::int64_t num) const {
  LS_CHECK(first >= 0 && num >= 0 && first <= count && num <= count - first, num,
           " elements from element ", first, " of ", count);
  return {static_cast<std::byte*>(data) + first * static_cast<std::int64_t>(size_of(dtype)), num,
          dtype, device};
}

}  // namespace lockstep
