// The walk over the lattice: the fastest layouts that fit, without pricing most of the others.
//
// Two bounds skip points, and neither can skip a winner (tests compare with a walk that skips
// nothing):
//   memory  states alone, without any activation, must fit; and memory only grows with the
//           microbatch
//   time    what the layers of a step compute and exchange does not depend on how a pipeline cuts
//           them, so one price without a pipeline bounds all others of the same tp, cp, ep and
//           microbatch from below; the bubble of the timetable comes on top. Once one sharding is
//           priced, only its own communication differs in the others
// Blocks that must be made again are priced as if every rank made as many; finalists.h has each
// rank's own. Layouts with the smallest bound are visited first, so that few of the rest come near
// the best. A pure function of its question; any thread may call it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/planner/lattice.h"

namespace lockstep::planner {

struct Priced {
  cost::PriceRequest request;  // refers to what the question refers to
  cost::Price price;
  double hoped = 0;  // hoped_seconds()
  double seconds() const { return price.time.total(); }
};

// What a step may take when its stages are cut where they take alike, as finalists.h cuts them:
// with one stage per rank the price's, less what even stages wait for the head. `layers` are the
// times of the request.
double hoped_seconds(const cost::PriceRequest& request, const cost::StepTime& time,
                     const cost::LayerTimes& layers);

struct Walk {
  // Fastest first as hoped, one for each schedule with its chunks and set of degrees; for each
  // microbatch size too where the question gives the core.
  std::vector<Priced> best;
  std::int64_t layouts = 0;  // points of the lattice
  std::int64_t times = 0;    // of which time was priced
  // When none fits: a device of so many bytes is needed at least; some states alone are more.
  double least_bytes = 0;
};

// At most `count` of them, and none that takes more than `within` times the best: what is so much
// slower by the closed form is not worth another look. REQUIRES: count >= 1, within >= 1.
inline constexpr double kWithin = 1.25;
Walk walk(const Lattice& lattice, std::size_t count, double within = kWithin);

// One of each schedule that the question allows, `layouts` left out. Layouts without a pipeline are
// of 1f1b.
std::map<const pipeline::CatalogRow*, Walk> walk_schedules(const Lattice& lattice,
                                                           std::size_t count);

bool same_degrees(const cost::PriceRequest& a, const cost::PriceRequest& b);  // tp cp pp dp ep etp

// The order of results: less time that is hoped for, then less memory.
bool better(const Priced& a, const Priced& b);

}  // namespace lockstep::planner
