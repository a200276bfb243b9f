// A point of the lattice as a plan::Layout, which has a name and can be run, and the way back.
#pragma once

#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/plan/layout.h"
#include "lockstep/search/finalists.h"
#include "lockstep/search/lattice.h"

namespace lockstep::search {

// REQUIRES: whole numbers, as the lattice makes them.
plan::Layout layout_of(const cost::PriceRequest& request);
// With what its stages hold.
plan::Layout layout_of(const Finalist& finalist);

// The price request of a layout with microbatches of so many sequences; the layers of stages are simulate()'s to
// know, not the price's. Refuses what has no closed form:
// a schedule outside priced_schedules(), rows to recompute other than none, the cheap and whole blocks, an order other than the
// two of cost::Placement.
Result<cost::PriceRequest> request_of(const Question& question, const plan::Layout& layout,
                                      std::int64_t microbatch);

// Priced, and timed as it would run: layers lie as the layout says, else dealt evenly. Refuses what request_of()
// refuses. REQUIRES: a layout without contradictions for the model.
Result<Finalist> time_layout(const Question& question, const plan::Layout& layout,
                             std::int64_t microbatch);

std::string_view schedule_name(cost::Pipe pipe);  // of schedule::catalog()
Result<cost::Pipe> pipe_named(std::string_view schedule);

}  // namespace lockstep::search
