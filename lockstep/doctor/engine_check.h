// Whether the engine works on this machine: looks and tries, in about a second.
#pragma once

#include <vector>

#include "lockstep/base/finding.h"

namespace lockstep::doctor {

// LibTorch as loaded, OpenMP runtimes, strict kernels, and every backend: on the CPU by a real
// all_reduce between two endpoints over loopback, on GPUs by looking for devices. Call
// request_strict_kernels first.
std::vector<Finding> check_engine();

}  // namespace lockstep::doctor
