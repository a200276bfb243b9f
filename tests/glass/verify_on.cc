#include "tests/glass/verify_on.h"

#include <string>

#include "cli/run_file.h"
#include "cli/verify/request.h"
#include "cli/verify/torch/report.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/verify/verify.h"
#include "tests/glass/cuda_only.h"
#include "tests/glass/race.h"

namespace lockstep::glass {
namespace {

// What holds on CPU tensors but for the memory that the CPU's operators take inside, and on the
// device.
Result<verify::Verdict> check(verify::Verifier& verifier, const spec::Layout& layout,
                              const TestDevice& device) {
  const verify::Verdict on_cpu = LS_TRY(verifier.check(layout));
  if (!on_cpu.ok() && on_cpu.failure_kind != verify::FailureKind::kPrediction) return on_cpu;
  verify::Fault on_device;
  on_device.wrap_world = device.new_wires();
  verify::Verdict verdict = verifier.check_fault(layout, on_device, Seconds{60});
  if (verdict.ok() && verdict.run != on_cpu.run) verdict.failure = "other bits than on CPU tensors";
  for (const std::string& report : race().take_reports())
    if (verdict.ok()) verdict.failure = report;
  return verdict;
}

}  // namespace

Result<cli::ExitCode> verify_on(const TestDevice& device, const cli::Args& args,
                                cli::Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  install_cuda_only();
  device.install();
  config::Report mistakes;
  const auto request = cli::read_verify_request(args, mistakes, DeviceKind::kCuda);
  if (!request) return cli::fail(output, mistakes, cli::subject_of(args));
  const RealClock clock;
  auto verifier =
      LS_TRY(verify::Verifier::create(request->spec, static_cast<int>(request->spec.train.steps)));
  cli::VerifyReport report(*request,
                           {std::string("threads of this process, on ") + device.name, true},
                           {cli::VerifyReport::Form::kText, args.flag("verbose")}, output);
  report.begin(verifier.model());
  for (const spec::Layout& layout : request->layouts)
    report.add(LS_TRY(check(verifier, layout, device)));
  report.conclude(clock.now().since_start);
  return report.failed() == 0 ? cli::ExitCode::kOk : cli::ExitCode::kCheckFailed;
}

}  // namespace lockstep::glass
