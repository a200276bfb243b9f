// lockstep train: runs a job on threads, on processes it starts, or as one rank of a launcher's job.
#include <string>
#include <vector>

#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/train_log.h"
#include "cli/verbs.h"
#if LOCKSTEP_WITH_TORCH
#include <utility>

#include "lockstep/comm/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/plan/legal.h"
#include "lockstep/plan/spec.h"
#include "lockstep/tensor/gloo_world.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/step_record.h"
#include "lockstep/train/trainer.h"
#endif

namespace lockstep::cli {
namespace {

#if LOCKSTEP_WITH_TORCH

constexpr Seconds kOpDeadline = {600};
constexpr Seconds kMeetingDeadline = {60};
constexpr int kMaxThreads = 256;
constexpr std::size_t kStepsKept = 5;  // as help says

// What every rank does; the one with a log also tells.
struct RankEnding {
  train::Ending ending = train::Ending::kFinished;
  cost::RunTimeline measured = {};  // of all ranks, when that is wanted
};

RankEnding train_rank(const train::Job& job, const TrainWishes& wishes, comm::World& world,
                      TrainLog* log) {
  const plan::Spec& spec = job.spec;
  const data::MockTokens source(static_cast<std::uint64_t>(spec.train.seed), spec.model.vocab,
                                /*ignore_some=*/false);
  train::Session session(job, world, "", source, kOpDeadline);
  train::StepRecord record(kStepsKept);
  const auto on_step = [&](std::int64_t step, const train::StepReport& report) {
    if (wishes.files.any() && report.sequences == spec.batch.global_batch)
      record.add(step, session);
    if (log != nullptr) log->step(step, report, step + 1 == spec.train.steps);
  };
  RankEnding end;
  end.ending = train::train(session, 0, spec.train.steps, stop_on_signals(), on_step);
  if (wishes.files.any())
    end.measured = record.collect(job, world, "", Deadline::after(kOpDeadline));
  return end;
}

ExitCode run_threads(const train::Job& job, const TrainWishes& wishes, Output& output) {
  const int ranks = job.mesh.world();
  if (ranks > kMaxThreads)
    return fail(output,
                Error{Code::kUnsuitableEnvironment,
                      join_parts(counted(ranks, "rank"), " do not fit into one process"),
                      "start one process per rank on your machines, with torchrun or srun"});
  TrainLog log(job, counted(ranks, "thread"), wishes, output);
  log.begin();
  RankEnding end;
  comm::run_local(ranks, [&](comm::World& world) {
    const bool tells = world.rank() == Rank{0};
    RankEnding own = train_rank(job, wishes, world, tells ? &log : nullptr);
    if (tells) end = std::move(own);
  });
  return log.conclude(end.ending, end.measured);
}

ExitCode run_rank(const train::Job& job, const TrainWishes& wishes, Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  const auto fits = mesh::check_world(job.spec.layout.degrees, rendezvous->world_size);
  if (!fits.ok()) return fail(output, fits.error());
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(kMeetingDeadline));
  if (rendezvous->rank != Rank{0})
    return exit_code_of(train_rank(job, wishes, *world, nullptr).ending);
  TrainLog log(job, counted(rendezvous->world_size, "process"), wishes, output);
  log.begin();
  const RankEnding end = train_rank(job, wishes, *world, &log);
  return log.conclude(end.ending, end.measured);
}

ExitCode run_train(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  stop_on_signals();
  config::Report report;
  const auto document = load_run(args, report);
  const auto spec = document ? plan::read_spec(*document, report) : std::nullopt;
  if (spec)
    for (const Error& error :
         plan::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      report.add(error);
  if (!spec || !report.ok()) return fail(output, report, subject_of(args));
  if (!args.flag("mock-data"))
    return fail(output, Error{Code::kNotRunYet, "`lockstep train` can not read data files yet",
                              "train on made-up text with --mock-data"});
  const Result<train::Job> job = train::make_job(*spec);
  if (!job.ok()) return fail(output, job.error());
  const auto named = [&](const char* option) {
    return args.has(option) ? args.text(option) : std::string();
  };
  TrainWishes wishes = {args.integer("every"), {named("trace"), named("timeline"), {}}};
  if (args.has("calibration")) {
    if (wishes.files.trace.empty())
      return fail(output, Error{Code::kConflict,
                                join_parts("--calibration ", args.text("calibration"),
                                           " is for what a trace shows as predicted, but there is "
                                           "no --trace"),
                                "add --trace OUT, or leave --calibration out"});
    Result<CalibrationFile> read = read_calibration_for(args.text("calibration"), *spec);
    if (!read.ok()) return fail(output, read.error());
    wishes.files.calibration = *std::move(read);
  }
  for (const std::string& file : {wishes.files.trace, wishes.files.timeline})
    if (const auto can = file.empty() ? Result<void>{} : check_writable(file); !can.ok())
      return fail(output, can.error());
  if (is_rank()) return run_rank(*job, wishes, output);
  if (args.flag("processes")) return run_as_processes(job->mesh.world(), output);
  return run_threads(*job, wishes, output);
}

#endif

}  // namespace

Verb train_verb() {
  return {
      .name = "train",
      .summary = "Train a model",
      .description =
          "Ranks are threads of this process, or with --processes one process each. Started by "
          "torchrun or another launcher (RANK is set) it is one rank of that job. Ctrl-C, SIGTERM "
          "and SIGUSR1 end training after the running step, with exit code 143; a second Ctrl-C or "
          "SIGTERM ends it at once.",
      .examples = {{"lockstep train examples/tiny.toml --mock-data",
                    "a small model on made-up text"},
                   {"lockstep train run.toml --mock-data --set layout.dp=4 --set layout.zero=3",
                    "another run file, sharded over four threads"},
                   {"lockstep train run.toml --mock-data --trace run.json",
                    "what was predicted and what was measured, for Perfetto"},
                   {"torchrun --no-python --nproc-per-node 4 lockstep train run.toml --mock-data",
                    "as a launcher's job"}},
      .options = {{.name = "mock-data", .help = "Train on made-up text that can be learned"},
                  {.name = "processes", .help = "One process per rank, over gloo"},
                  {.name = "every",
                   .value = "N",
                   .type = OptionType::kInt,
                   .initial = "10",
                   .help = "Print every Nth step; the first and the last are always printed",
                   .min = 1},
                  {.name = "trace",
                   .value = "OUT",
                   .help =
                       "Every op of the last step with its times, below what was predicted, for "
                       "Perfetto and chrome://tracing"},
                  {.name = "calibration",
                   .value = "IN",
                   .help = "With --trace: what `lockstep calibrate` measured, to predict with "
                           "[default: in proportion to FLOPs]"},
                  {.name = "timeline",
                   .value = "OUT",
                   .help = "The last five steps, op by op, for simulate --against"},
                  set_option()},
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .needs_torch = true,
#if LOCKSTEP_WITH_TORCH
      .run = run_train};
#else
      .run = nullptr};
#endif
}

}  // namespace lockstep::cli
