// Whether ranks can train on the devices of this machine: tried, in a few seconds.
#pragma once

#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/finding.h"

namespace lockstep::doctor {

// Every device of the kind by name; kernels of our own on the first, against what the CPU computes;
// and an all_reduce among all of them. No device is a problem.
std::vector<Finding> check_devices(DeviceKind kind);

}  // namespace lockstep::doctor
