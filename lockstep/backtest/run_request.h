// From a published run to what its step is priced as. Whatever a source does not say is assumed
// here, by rules that look at the row's description alone (run_stack.h has those on software);
// settings a source leaves out of a tuned table are taken at a likely value that fits: what is
// recomputed at its fastest, microbatch and chunks at the middle of those that are nearly as fast
// as the best.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/backtest/run_stack.h"
#include "lockstep/backtest/run_table.h"
#include "lockstep/base/result.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/cost/analytic/price.h"

namespace lockstep::backtest {

// A request with what it points to. The pointers stay valid while it lives, wherever it is moved.
struct RunRequest {
  std::unique_ptr<cost::ModelShape> shape;
  std::unique_ptr<cluster::Cluster> cluster;
  // At least one; more where settings are not given. Every `policies` in a row differ in what they
  // keep alone, the first keeps most.
  std::vector<cost::PriceRequest> candidates;
  std::size_t policies = 1;
};

// kRowNotPriced, with the column and its value, and the row: what cannot be read, and what no run
// has. A degree that is no whole number or does not divide, more pipeline places than blocks,
// embedding and head, a ZeRO stage beyond 3.
Result<RunRequest> request_of(const PublishedRun& run, const StackHabits& habits = kFittedHabits);

// A likely candidate that fits, or the smallest when none does. `rates` replaces those of the
// device when not null.
struct Priced {
  cost::PriceRequest request;
  cost::Price price;
};
Priced price_run(const RunRequest& run, const cluster::DeviceRates* rates = nullptr);

}  // namespace lockstep::backtest
