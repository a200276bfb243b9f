#include "lockstep/model/pass_bytes.h"

#include <algorithm>

#include "lockstep/model/pass_record.h"

namespace lockstep::model {

std::int64_t extra(const MemoryEvents& events) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const MemoryEvent& event : events) most = std::max(most, live += event.bytes);
  return most;
}

MemoryEvents pass_events(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                         UnitPass pass) {
  return pass_record(config, unit, sizes, pass).events;
}

}  // namespace lockstep::model
