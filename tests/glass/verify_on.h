// `verify` on a test device, with the arguments of `lockstep verify`: every layout with a device's
// kernels on CPU tensors, and on the device, whose bits must be theirs. What the checker reports
// (race.h) fails a layout, too.
#pragma once

#include <functional>

#include "cli/verb.h"
#include "lockstep/verify/trial.h"

namespace lockstep::glass {

struct TestDevice {
  const char* name;
  void (*install)();
  comm::WorldWrap (*new_wires)();  // of one trial
};

Result<cli::ExitCode> verify_on(const TestDevice& device, const cli::Args& args,
                                cli::Output& output);

}  // namespace lockstep::glass
