// Readers of a pass: internal to parts.
#pragma once

#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {

MemoryEvents memory_events(const Pass& pass, const Values& values, Sizes sizes);
std::vector<Collective> read_collectives(const Pass& pass, const Values& values, Sizes sizes);

}  // namespace lockstep::parts
