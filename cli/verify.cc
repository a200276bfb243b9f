// lockstep verify: proves that layouts train what one device would.
#include <string>
#include <vector>

#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "cli/verify_request.h"
#if LOCKSTEP_WITH_TORCH
#include <memory>

#include "cli/verify_report.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/tensor/gloo_world.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#endif

namespace lockstep::cli {
namespace {

#if LOCKSTEP_WITH_TORCH

VerifyReport::Form form_of(const Args& args, const Output& output) {
  return output.json             ? VerifyReport::Form::kJson
         : args.flag("markdown") ? VerifyReport::Form::kMarkdown
                                 : VerifyReport::Form::kText;
}

// Verifies one layout after the other; on threads, or in `world` when there is one.
ExitCode verify(const VerifyRequest& request, const Args& args, comm::World* world,
                Output& output) {
  const RealClock clock;
  const bool strict = tensor::test_strict_kernels().holds();
  auto verifier =
      train::Verifier::create(request.spec, static_cast<int>(request.spec.train.steps), strict);
  if (!verifier.ok()) return fail(output, verifier.error());
  const bool tells = world == nullptr || world->rank() == Rank{0};
  VerifyReport report(
      request, {world == nullptr ? "threads of this process" : "processes, over gloo", strict},
      {form_of(args, output), args.flag("verbose")}, output);
  if (tells) report.begin(verifier->model());
  bool stopped = false;
  for (const plan::Layout& layout : request.layouts) {
    stopped = world == nullptr && stop_on_signals();
    if (stopped) break;
    if (tells) report.running(layout);
    auto verdict = world == nullptr ? verifier->check(layout) : verifier->check_in(*world, layout);
    if (!verdict.ok()) return fail(output, verdict.error());
    if (tells) report.add(*std::move(verdict));
  }
  if (!tells) return ExitCode::kOk;
  report.conclude(clock.now().since_start);
  if (stopped) return ExitCode::kTerminated;
  return report.failed() == 0 ? ExitCode::kOk : ExitCode::kCheckFailed;
}

ExitCode verify_as_rank(const VerifyRequest& request, const Args& args, Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  for (const plan::Layout& layout : request.layouts)
    if (const auto fits = mesh::check_world(layout.degrees, rendezvous->world_size); !fits.ok())
      return fail(output, fits.error());
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(Seconds{60}));
  return verify(request, args, world.get(), output);
}

ExitCode run_verify(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  config::Report report;
  const auto request = read_verify_request(args, report);
  if (!request) return fail(output, report, subject_of(args));
  if (is_rank()) return verify_as_rank(*request, args, output);
  if (args.flag("processes")) return run_as_processes(std::stoi(request->ranks.back()), output);
  return verify(*request, args, nullptr, output);
}

#endif

std::vector<Option> options() {
  std::vector<Option> list = verify_request_options();
  list.push_back({.name = "processes",
                  .help = "One process per rank, over gloo; layouts of exactly --ranks ranks",
                  .group = "How"});
  list.push_back({.name = "verbose", .help = "Print a line for every layout", .group = "How"});
  list.push_back({.name = "markdown", .help = "Print a table of verdicts", .group = "How"});
  Option set = set_option();
  set.group = "How";
  list.push_back(std::move(set));
  return list;
}

}  // namespace

Verb verify_verb() {
  return {
      .name = "verify",
      .summary = "Prove that layouts train what one device would",
      .description =
          "Trains a few steps on one rank and again under every layout, and compares loss, "
          "gradient "
          "norm, every gradient, moment and parameter. Layouts of equal tensor and data degree, "
          "microbatch size and reduction must agree to the bit; bytes sent and tensor memory must "
          "be what was "
          "predicted. Exit code 1 when a layout fails; its first differing tensor is named. Needs "
          "no arguments; without FILE and --model it verifies on a built-in small llama.",
      .examples = {{"lockstep verify", "a built-in model, on up to four threads"},
                   {"lockstep verify --layouts all --ranks 8", "every layout of up to eight ranks"},
                   {"lockstep verify run.toml --shrink",
                    "the layout of a run file, on a small model of its kind"},
                   {"lockstep verify --layouts \"pp2 dp2 zero3\" --processes",
                    "one layout, over processes"}},
      .options = options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, batch and optimizer",
                       .required = false}},
      .needs_torch = true,
#if LOCKSTEP_WITH_TORCH
      .run = run_verify};
#else
      .run = nullptr};
#endif
}

}  // namespace lockstep::cli
