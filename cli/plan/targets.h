// How many devices a target takes: --target-days and --max-cost of `lockstep plan`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/plan/request.h"
#include "cli/verb.h"

namespace lockstep::cli {

// Numbers of devices that are looked at, ascending: those below a node that are powers of two;
// nodes times 1, 3 or 5 times a power of two; all devices of the cluster.
std::vector<std::int64_t> device_counts(const cluster::Cluster& cluster);

// Leaves the cluster of `request` with so many devices, each count at its fastest layout: with
// --target-days the fewest that finish in time, and for --max-cost if that is given; with
// --max-cost alone the fastest that cost no more. Nothing to do without either. Exact over
// device_counts(): it leaves out only counts that would be too slow, or slower than the best, at
// the devices' peak. kTargetMissed when none will do.
std::optional<Error> choose_devices(const Args& args, PlanRequest& request);

Json trials_json(const PlanRequest& request);  // counts that were priced

}  // namespace lockstep::cli
