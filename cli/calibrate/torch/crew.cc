#include "cli/calibrate/torch/crew.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "cli/help.h"
#include "cli/ranks.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/tensor/torch_version.h"

namespace lockstep::cli {
namespace {

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

}  // namespace

int cores_here() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Result<CalibrateCrew> CalibrateCrew::join(int ranks) {
  CalibrateCrew crew;
  if (!is_rank()) return crew;
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return rendezvous.error();
  if (rendezvous->world_size != ranks)
    return Error{Code::kDegreesDoNotMatchWorld,
                 join_parts("the world has ", rendezvous->world_size,
                            " ranks, this run is calibrated on ", ranks),
                 "start as many, or use --processes"};
  crew.world_ = comm::join(DeviceKind::kCpu, *rendezvous, Deadline::after(Seconds{60}));
  return crew;
}

cost::Calibration CalibrateCrew::measure(const train::Calibrator& calibrator,
                                         const std::string& name, Seconds budget) {
  cost::Calibration made;
  if (world_)
    made = calibrator.run(*world_, name, budget);
  else
    comm::run_local(calibrator.ranks(), [&](comm::World& world) {
      cost::Calibration own = calibrator.run(world, name, budget);
      if (world.rank() == Rank{0}) made = std::move(own);
    });
  made.date = today();
  made.lockstep = version();
  made.torch = tensor::torch_version();
  made.cpu = processor();
  made.ranks_are = world_ ? "processes" : "threads";
  return made;
}

}  // namespace lockstep::cli
