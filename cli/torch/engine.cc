#include "cli/engine.h"

#include "lockstep/comm/backends/backends.h"
#include "lockstep/doctor/device_check.h"
#include "lockstep/doctor/engine_check.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::cli {
namespace {

std::vector<Finding> check() {
  tensor::request_strict_kernels();
  return doctor::check_engine();
}

std::vector<Finding> check_devices() { return doctor::check_devices(DeviceKind::kCuda); }

constexpr Engine kEngine = {run_train,    run_generate,   run_verify, run_audit,    run_calibrate,
                            unit_outputs, comm::backends, check,      check_devices};

}  // namespace
}  // namespace lockstep::cli

extern "C" const lockstep::cli::Engine* lockstep_engine() { return &lockstep::cli::kEngine; }
