// `rehearsal_lockstep VERB ...`: the program lockstep on LibTorch's CUDA half, over the libraries
// of a rehearsal. Started by run.sh. `verify` of a run file without device.kind = cuda compares
// with the same kernels on CPU tensors, bit for bit.
#include <cstdio>
#include <ostream>

#include "cli/engine.h"
#include "cli/verify/request.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/cuda/operators.h"
#include "lockstep/doctor/device_check.h"
#include "lockstep/doctor/engine_check.h"
#include "lockstep/tensor/strict_kernels.h"
#include "tests/glass/cuda_only.h"
#include "tests/glass/race.h"
#include "tests/glass/verify_on.h"
#include "tests/rehearsal/rehearsal.h"
#include "tests/rehearsal/values.h"

namespace lockstep::rehearsal {
namespace {

using Run = Result<cli::ExitCode>(const cli::Args& args, cli::Output& output);

void install() {
  cuda::install_operators();
  install_values();
}

comm::WorldWrap device_per_thread() {
  return comm::backend_for(DeviceKind::kCuda)->device_per_thread();
}

void tell_without_values() {
  for (const auto& [name, calls] : without_values())
    std::fprintf(stderr, "no values: %s, %lld times\n", name.c_str(),
                 static_cast<long long>(calls));
}

// LibTorch waits for devices while the process ends, too, when the checker is gone.
std::vector<std::string> take_reports() {
  rehearsal_listen(nullptr);
  return glass::race().take_reports();
}

// A verb as the program itself runs it, with values; what the checker reports fails it.
Result<cli::ExitCode> run_with_values(Run& run, const cli::Args& args, cli::Output& output) {
  glass::install_cuda_only();
  install();
  const auto ended = run(args, output);
  tell_without_values();
  const std::vector<std::string> races = take_reports();
  for (const std::string& report : races) output.err << "rehearsal: " << report << '\n';
  if (races.empty() || !ended.ok() || *ended != cli::ExitCode::kOk) return ended;
  return cli::ExitCode::kCheckFailed;
}

Result<cli::ExitCode> train(const cli::Args& args, cli::Output& output) {
  return run_with_values(cli::run_train, args, output);
}

Result<cli::ExitCode> verify(const cli::Args& args, cli::Output& output) {
  config::Report mistakes;
  const auto request = cli::read_verify_request(args, mistakes);
  if (request && request->spec.device == DeviceKind::kCuda)
    return run_with_values(cli::run_verify, args, output);
  const auto ended =
      glass::verify_on({"a rehearsal of CUDA", install, device_per_thread}, args, output);
  tell_without_values();
  return ended;
}

std::vector<Finding> check() {
  tensor::request_strict_kernels();
  return doctor::check_engine();
}

std::vector<Finding> check_devices() {
  glass::install_cuda_only();
  install();
  std::vector<Finding> findings = doctor::check_devices(DeviceKind::kCuda);
  for (const std::string& report : take_reports())
    findings.push_back({Finding::Verdict::kProblem, "rehearsal", report});
  return findings;
}

constexpr cli::Engine kEngine = {.train = train,
                                 .verify = verify,
                                 .backends = comm::backends,
                                 .check = check,
                                 .check_devices = check_devices};

}  // namespace
}  // namespace lockstep::rehearsal

extern "C" const lockstep::cli::Engine* lockstep_engine() { return &lockstep::rehearsal::kEngine; }
