// How late operations of an in-process world are, drawn from a seed.
#pragma once

#include <cstdint>

#include "lockstep/base/check.h"
#include "lockstep/base/random.h"
#include "lockstep/comm/local/local.h"

namespace lockstep::comm {

// Anything from 0 to `most`, mostly little; a pure function of the seed and the operation, so that
// a seed holds back the same ones in every run.
inline Lateness seeded_lateness(std::uint64_t seed, Seconds most) {
  return [seed, most](const Delivery& d) {
    const RandomStream stream(seed, join_parts(d.group, " ", static_cast<int>(d.kind), " ", d.from,
                                               " ", d.to, " ", d.tag));
    const double drawn = stream.uniform(static_cast<std::uint64_t>(d.number));
    return Seconds{most.value * drawn * drawn * drawn};
  };
}

}  // namespace lockstep::comm
