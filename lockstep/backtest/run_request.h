// From a published run to what its step is priced as. Whatever a source does not say is assumed here, by rules that
// look at the row's description alone (docs/accuracy.md lists them); settings a source leaves out of a
// tuned table (recomputation, microbatch, chunks) are taken at their fastest value that fits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backtest/run_table.h"
#include "lockstep/base/result.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/cost/price.h"

namespace lockstep::backtest {

// Software that leaves its devices idle between kernels to a different degree, by what a row says.
enum class StackClass : std::uint8_t {
  kTuned,    // the vendor's own stack, or a compiled program
  kSharded,  // PyTorch FSDP, eager
  kOther,    // DeepSpeed and home-made trainers
};
StackClass stack_class_of(const PublishedRun& run, int zero);

// Stack::gaps of each class. Fitted on calibration rows together with the rates of devices: the tuned stack is the
// reference; on Hopper it runs beside FSDP, on Ampere FSDP beside the others.
struct StackGaps {
  double sharded, other;
};
extern const StackGaps kFittedGaps;

// A request with what it points to. The pointers stay valid while it lives, wherever it is moved.
struct RunRequest {
  std::unique_ptr<cost::ModelShape> shape;
  std::unique_ptr<cluster::Cluster> cluster;
  std::vector<cost::PriceRequest> candidates;  // at least one; more where settings are not given
};

// kRowNotPriced, with the column and its value.
Result<RunRequest> request_of(const PublishedRun& run, const StackGaps& gaps = kFittedGaps);

// The fastest candidate that fits, or the smallest when none does. `rates` replaces those of the device
// when not null.
struct Priced {
  cost::PriceRequest request;
  cost::Price price;
};
Priced price_run(const RunRequest& run, const cluster::DeviceRates* rates = nullptr);

}  // namespace lockstep::backtest
