// What tests of communicators pass at every call.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/clock.h"

namespace lockstep::comm {

inline Deadline soon() { return Deadline::after(Seconds{20}); }

inline Buffer floats(std::vector<float>& v) {
  return {v.data(), static_cast<std::int64_t>(v.size()), DType::kF32, {}};
}

}  // namespace lockstep::comm
