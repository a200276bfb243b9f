// `glass_lockstep verify FILE ...`, with the arguments of `lockstep verify`: every layout with a
// device's kernels on CPU tensors, and on glass, whose bits must be theirs. Fails on what glass
// reports, too.
#include "lockstep/verify/verify.h"
#include "cli/engine.h"
#include "cli/run_file.h"
#include "cli/verify/request.h"
#include "cli/verify/torch/report.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "tests/glass/backend.h"
#include "tests/glass/cuda_only.h"
#include "tests/glass/device.h"

namespace lockstep::cli {
namespace {

// What holds on CPU tensors but for the memory that the CPU's operators take inside, and on glass.
Result<verify::Verdict> check(verify::Verifier& verifier, const spec::Layout& layout) {
  const verify::Verdict on_cpu = LS_TRY(verifier.check(layout));
  if (!on_cpu.ok() && on_cpu.failure_kind != verify::FailureKind::kPrediction) return on_cpu;
  const glass::Wires wires;
  verify::Fault on_glass;
  on_glass.wrap_world = [&](comm::World& inner) { return wires.join(inner); };
  verify::Verdict verdict = verifier.check_fault(layout, on_glass, Seconds{60});
  if (verdict.ok() && verdict.run != on_cpu.run) verdict.failure = "other bits than on CPU tensors";
  for (const std::string& report : glass::race().take_reports())
    if (verdict.ok()) verdict.failure = report;
  return verdict;
}

Result<ExitCode> run(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  glass::install_cuda_only();
  glass::install();
  config::Report mistakes;
  auto request = read_verify_request(args, mistakes);
  if (!request) return fail(output, mistakes, subject_of(args));
  request->spec.device = DeviceKind::kCuda;
  const RealClock clock;
  auto verifier =
      LS_TRY(verify::Verifier::create(request->spec, static_cast<int>(request->spec.train.steps)));
  VerifyReport report(*request, {"threads of this process, on glass", true},
                      {VerifyReport::Form::kText, args.flag("verbose")}, output);
  report.begin(verifier.model());
  for (const spec::Layout& layout : request->layouts) report.add(LS_TRY(check(verifier, layout)));
  report.conclude(clock.now().since_start);
  return report.failed() == 0 ? ExitCode::kOk : ExitCode::kCheckFailed;
}

constexpr Engine kEngine = {run, run, run, nullptr, nullptr};

}  // namespace
}  // namespace lockstep::cli

extern "C" const lockstep::cli::Engine* lockstep_engine() { return &lockstep::cli::kEngine; }
