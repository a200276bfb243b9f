// lockstep verify: proves that layouts train what one device would.
#include <functional>
#include <string>

#include "cli/engine.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/verify/request.h"
#include "cli/verify/torch/report.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::cli {
namespace {

VerifyReport::Form form_of(const Args& args, const Output& output) {
  return output.json             ? VerifyReport::Form::kJson
         : args.flag("markdown") ? VerifyReport::Form::kMarkdown
                                 : VerifyReport::Form::kText;
}

// NCCL adds in another order than one rank, and so does flash attention in every run.
verify::VerifierOptions options_for(DeviceKind device) {
  if (device == DeviceKind::kCpu) return {.equal_bits = tensor::test_strict_kernels().holds()};
  return {.equal_bits = false, .devices = comm::backend_for(device)->device_per_thread};
}

std::string ranks_are(DeviceKind device, const comm::World* world) {
  if (world != nullptr) return "processes, over gloo";
  const std::string threads = "threads of this process";
  return device == DeviceKind::kCpu
             ? threads
             : join_parts(threads, ", each on a device of kind ", to_text(device));
}

// Ranks on devices are threads, as many at most as there are devices.
Result<void> check_devices(const VerifyRequest& request, const Args& args) {
  LS_TRY(comm::check_backend(request.spec.device));
  if (is_rank() || args.flag("processes"))
    return Error{Code::kUnsuitableEnvironment,
                 join_parts("`lockstep verify` runs ranks on devices of kind ",
                            to_text(request.spec.device), " as threads of one process"),
                 "leave --processes and the launcher out"};
  const int here = comm::backend_for(request.spec.device)->num_devices();
  if (std::stoi(request.ranks.back()) <= here) return {};
  return Error{Code::kUnsuitableEnvironment,
               join_parts("a layout of ", request.ranks.back(), " ranks, and ", here,
                          here == 1 ? " device" : " devices"),
               join_parts("add --ranks ", here, ", or name layouts of as many")};
}

// Verifies one layout after the other; on threads, or in `world` when there is one.
Result<ExitCode> verify(const VerifyRequest& request, const Args& args, comm::World* world,
                        Output& output) {
  const RealClock clock;
  verify::VerifierOptions options = options_for(request.spec.device);
  options.labels = request.labels;
  options.routing = request.routing;
  options.op_deadline = Seconds{args.real("op-deadline")};
  auto verifier = LS_TRY(
      verify::Verifier::create(request.spec, static_cast<int>(request.spec.train.steps), options));
  const bool tells = leads(world);
  VerifyReport report(request, {ranks_are(request.spec.device, world), options.equal_bits},
                      {form_of(args, output), args.flag("verbose")}, output);
  if (tells) report.begin(verifier.model());
  bool stopped = false;
  for (const spec::Layout& layout : request.layouts) {
    stopped = world == nullptr && stop_on_signals();
    if (stopped) break;
    if (tells) report.running(layout);
    auto verdict =
        LS_TRY(world == nullptr ? verifier.check(layout) : verifier.check_in(*world, layout));
    if (tells) report.add(std::move(verdict));
  }
  if (!tells) return ExitCode::kOk;
  report.conclude(clock.now().since_start);
  if (stopped) return ExitCode::kTerminated;
  return report.failed() == 0 ? ExitCode::kOk : ExitCode::kCheckFailed;
}

Result<ExitCode> verify_as_rank(const VerifyRequest& request, const Args& args, Output& output) {
  const auto rendezvous = LS_TRY(comm::rendezvous_from(comm::process_environment));
  for (const spec::Layout& layout : request.layouts)
    LS_TRY(mesh::check_world(layout.degrees, rendezvous.world_size));
  const auto world = comm::join(DeviceKind::kCpu, rendezvous, Deadline::after(Seconds{60}));
  return verify(request, args, world.get(), output);
}

}  // namespace

Result<ExitCode> run_verify(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  config::Report report;
  const auto tell = [&](const std::string& what) { output.status(what); };
  const bool tells = output.live && !is_rank();
  const auto request = read_verify_request(
      args, report, {}, tells ? std::function<void(const std::string&)>(tell) : nullptr);
  if (tells) output.status("");
  if (!request) return fail(output, report, subject_of(args));
  if (request->spec.device != DeviceKind::kCpu) LS_TRY(check_devices(*request, args));
  if (is_rank()) return verify_as_rank(*request, args, output);
  if (args.flag("processes")) return run_as_processes(std::stoi(request->ranks.back()), output);
  return verify(*request, args, nullptr, output);
}

}  // namespace lockstep::cli
