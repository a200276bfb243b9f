// How many devices a target takes: --target-days and --max-cost of `lockstep plan`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/plan/request.h"
#include "cli/verb.h"

namespace lockstep::cli {

// Numbers of devices that are looked at, ascending: those below a node that are powers of two;
// every number of nodes up to 2 x kNodes, from there kNodes numbers between a power of two and the
// next; all devices of the cluster.
inline constexpr std::int64_t kNodes = 16;
std::vector<std::int64_t> device_counts(const cluster::Cluster& cluster);

// Leaves the cluster of `request` with so many devices, each count at its fastest layout: with
// --target-days the fewest that finish in time, and for --max-cost if that is given; with
// --max-cost alone the fastest that cost no more. Nothing to do without either. Exact over
// device_counts(): none is monotone in the other, so it leaves out only counts that bounds rule
// out, the devices' peak and planner::least_seconds(). kTargetMissed when none will do.
std::optional<Error> choose_devices(const Args& args, PlanRequest& request);

Json trials_json(const PlanRequest& request);  // counts that were priced

}  // namespace lockstep::cli
