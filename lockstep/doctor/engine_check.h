// Whether the engine works on this machine: looks and tries, in about a second.
#pragma once

#include <vector>

#include "lockstep/base/finding.h"

namespace lockstep::doctor {

// LibTorch as loaded, OpenMP runtimes, strict kernels, and each backend row: gloo by a real
// all_reduce between two endpoints over loopback, nccl by counting devices. Call
// request_strict_kernels first.
std::vector<Finding> check_engine();

}  // namespace lockstep::doctor
