// A point of the lattice as a spec::Layout, which has a name and can be run, and the way back.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/planner/finalists.h"
#include "lockstep/planner/lattice.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

spec::Layout layout_of(const cost::PriceRequest& request);
// With what its stages hold.
spec::Layout layout_of(const Finalist& finalist);

// The price request of a layout with microbatches of so many sequences; the layers of stages are
// simulate()'s to know, not the price's. Refuses what has no closed form: a schedule outside
// planned_schedules(), rows to recompute other than none, selective and full, an order
// other than the two of cost::Placement.
Result<cost::PriceRequest> request_of(const Question& question, const spec::Layout& layout,
                                      std::int64_t microbatch);

// Priced, and timed as it would run: layers lie as the layout says, else as a run deals them.
// Refuses what request_of() refuses. REQUIRES: a layout without contradictions for the model.
Result<Finalist> time_layout(const Question& question, const spec::Layout& layout,
                             std::int64_t microbatch);

Result<const pipeline::CatalogRow*> find_planned(std::string_view schedule);
std::string timetable_name(const Timetable& timetable);  // "interleaved x4"

}  // namespace lockstep::planner
