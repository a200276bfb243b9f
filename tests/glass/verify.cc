// `glass_lockstep verify FILE ...`: the program lockstep, whose `verify` runs on glass.
#include "cli/engine.h"
#include "tests/glass/backend.h"
#include "tests/glass/device.h"
#include "tests/glass/verify_on.h"

namespace lockstep::glass {
namespace {

comm::WorldWrap new_wires() {
  return [wires = std::make_shared<Wires>()](comm::World& host) { return wires->join(host); };
}

Result<cli::ExitCode> run(const cli::Args& args, cli::Output& output) {
  return verify_on({"glass", install, new_wires}, args, output);
}

constexpr cli::Engine kEngine = {.train = run, .verify = run, .calibrate = run};

}  // namespace
}  // namespace lockstep::glass

extern "C" const lockstep::cli::Engine* lockstep_engine() { return &lockstep::glass::kEngine; }
