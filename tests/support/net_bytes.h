// What a pass leaves behind.
#pragma once

#include <cstdint>

#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {

// Live bytes at the end less those at the start.
inline std::int64_t net(const MemoryEvents& events) {
  std::int64_t live = 0;
  for (const MemoryEvent& event : events) live += event.bytes;
  return live;
}

}  // namespace lockstep::parts
