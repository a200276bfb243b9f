// The kernels of parts, on a CPU and on an accelerator (device_kernels.h): the upper half of a
// table whose lower half, what they take from memory besides their outputs, is parts/kernels.h. A
// new kind is a row of each.
#pragma once

#include "lockstep/nn/pass_run.h"

namespace lockstep::nn {

using Kernel = void (*)(PassRun&);

// Computes the part that runs, whatever thread runs it.
Kernel kernel_of(parts::Kind kind, model::Kernels whose);

}  // namespace lockstep::nn
