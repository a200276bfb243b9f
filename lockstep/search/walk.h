// The walk over the lattice: the fastest layouts that fit, without pricing most of the others.
//
// Two bounds skip points, and neither can skip a winner (tests compare with a walk that skips nothing):
//   memory  states alone, without any activation, must fit; and memory only grows with the microbatch
//   time    what the layers of a step compute and exchange does not depend on how a pipeline cuts them, so one
//           price without a pipeline bounds all others of the same tp, cp, ep and microbatch from below; the
//           bubble of the timetable comes on top. Once one sharding is priced, only its own communication differs
//           in the others
// Blocks that must be made again are priced as if every rank made as many; finalists.h has each rank's own.
// Layouts with the smallest bound are visited first, so that few of the rest come near the best.
// A pure function of its question; any thread may call it.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/cost/price.h"
#include "lockstep/search/lattice.h"

namespace lockstep::search {

struct Priced {
  cost::PriceRequest request;  // refers to the shape in the question
  cost::Price price;
  double seconds() const { return price.time.total(); }
};

struct Walk {
  std::vector<Priced> best;  // fastest first, one for each set of degrees (tp, cp, pp, dp, ep, etp)
  std::int64_t layouts = 0;  // points of the lattice
  std::int64_t memories = 0;  // of which memory was priced
  std::int64_t times = 0;     // and time
  // When none fits: a device of so many bytes is needed at least; some states alone are more.
  double least_bytes = 0;
};

// At most `count` of them, and none that takes more than `within` times the best: what is so much slower by the closed
// form is not worth another look. REQUIRES: count >= 1, within >= 1.
Walk walk(const Lattice& lattice, std::size_t count, double within = 1.25);

// The order of results: less time, then less memory.
bool better(const Priced& a, const Priced& b);

}  // namespace lockstep::search
