// lockstep train: runs a job on threads, on processes it starts, or as one rank of a launcher's job.
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_file.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/train_data.h"
#include "cli/train_log.h"
#include "cli/train_metrics.h"
#include "cli/train_rank.h"
#include "cli/train_wishes.h"
#include "cli/verbs.h"
#if LOCKSTEP_WITH_TORCH
#include "lockstep/comm/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/plan/legal.h"
#include "lockstep/plan/spec.h"
#include "lockstep/tensor/gloo_world.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#endif

namespace lockstep::cli {
namespace {

#if LOCKSTEP_WITH_TORCH

constexpr Seconds kMeetingDeadline = {60};
constexpr int kMaxThreads = 256;

ExitCode conclude(TrainLog& log, const RankEnding& end, Output& output) {
  return end.refused ? fail(output, *end.refused) : log.conclude(end.ending, end.measured);
}

ExitCode run_threads(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                     Output& output) {
  const int ranks = job.mesh.world();
  if (ranks > kMaxThreads)
    return fail(output,
                Error{Code::kUnsuitableEnvironment,
                      join_parts(counted(ranks, "rank"), " do not fit into one process"),
                      "start one process per rank on your machines, with torchrun or srun"});
  TrainLog log(job, counted(ranks, "thread"), data.title, wishes, output);
  log.begin();
  RankEnding end;
  comm::run_local(ranks, [&](comm::World& world) {
    const bool tells = world.rank() == Rank{0};
    RankEnding own = train_rank(job, data, wishes, world, tells ? &log : nullptr);
    if (tells) end = std::move(own);
  });
  return conclude(log, end, output);
}

ExitCode run_rank(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                  Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  const auto fits = mesh::check_world(job.spec.layout.degrees, rendezvous->world_size);
  if (!fits.ok()) return fail(output, fits.error());
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(kMeetingDeadline));
  if (rendezvous->rank != Rank{0}) {
    const RankEnding end = train_rank(job, data, wishes, *world, nullptr);
    return end.refused ? exit_code_of(end.refused->code) : exit_code_of(end.ending);
  }
  TrainLog log(job, counted(rendezvous->world_size, "process"), data.title, wishes, output);
  log.begin();
  return conclude(log, train_rank(job, data, wishes, *world, &log), output);
}

// What is on disk is looked at before ranks start, or by rank 0 of a launcher's: another would see
// what that has just written.
bool looks_at_places() { return comm::process_environment("RANK").value_or("0") == "0"; }

ExitCode run_train(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  stop_on_signals();
  config::Report report;
  auto document = load_run(args, report);
  if (document) document = with_plan(args, *std::move(document), report);
  const auto spec = document ? plan::read_spec(*document, report) : std::nullopt;
  if (spec)
    for (const Error& error :
         plan::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      report.add(error);
  if (!spec || !report.ok()) return fail(output, report, subject_of(args));
  const Result<train::Job> job = train::make_job(*spec);
  if (!job.ok()) return fail(output, job.error());
  const Result<TrainWishes> wishes = read_wishes(args, *spec);
  if (!wishes.ok()) return fail(output, wishes.error());
  if (looks_at_places())
    if (const Result<void> can = check_places(*wishes); !can.ok()) return fail(output, can.error());
  const Result<TrainData> data =
      args.flag("mock-data") ? Result<TrainData>(made_up_data(*spec)) : open_data(*spec);
  if (!data.ok()) return fail(output, data.error());
  if (args.flag("processes") && !is_rank()) return run_as_processes(job->mesh.world(), output);
  return is_rank() ? run_rank(*job, *data, *wishes, output)
                   : run_threads(*job, *data, *wishes, output);
}

#endif

std::vector<Option> state_options() {
  return {{.name = "save",
           .value = "DIR",
           .help = "Save checkpoints to DIR: at the end, when stopped, and by "
                   "--save-interval",
           .group = "State"},
          {.name = "save-interval",
           .value = "N",
           .type = OptionType::kInt,
           .help = "Save every N steps, too",
           .group = "State",
           .min = 1},
          {.name = "keep",
           .value = "N",
           .type = OptionType::kInt,
           .initial = "2",
           .help = "Checkpoints to keep, the newest ones; 0 for all",
           .group = "State",
           .min = 0},
          {.name = "resume",
           .help = "Go on from the newest checkpoint of --save; without one, refuse",
           .group = "State"},
          {.name = "load",
           .value = "PATH",
           .help = "Go on from this checkpoint, or the newest of this directory",
           .group = "State"},
          {.name = "weights",
           .value = "PATH",
           .help = "Begin a new run with the weights of this checkpoint",
           .group = "State"}};
}

std::vector<Option> train_options() {
  std::vector<Option> options = {
      {.name = "mock-data",
       .help = "Train on made-up text that can be learned, not on the files of [data]"},
      plan_option(),
      {.name = "processes", .help = "One process per rank, over gloo"},
      {.name = "every",
       .value = "N",
       .type = OptionType::kInt,
       .initial = "10",
       .help = "Print every Nth step; the first and the last are always printed",
       .min = 1},
      {.name = "metrics",
       .value = "DIR",
       .help = "Write metrics.jsonl and event files for TensorBoard to DIR [default: "
               "that of --save]"},
      {.name = "oracle",
       .help = "Print the bits of every step's loss and gradient norm and a digest of "
               "the state, and nothing else: runs can then be compared with diff"},
      {.name = "trace",
       .value = "OUT",
       .help = "Every op of the last step with its times, below what was predicted, for "
               "Perfetto and chrome://tracing"},
      {.name = "calibration",
       .value = "IN",
       .help = "With --trace: what `lockstep calibrate` measured, to predict with "
               "[default: in proportion to FLOPs]"},
      {.name = "timeline",
       .value = "OUT",
       .help = "The last five steps, op by op, for simulate --against"}};
  for (Option& option : state_options()) options.push_back(std::move(option));
  options.push_back(set_option());
  return options;
}

}  // namespace

Verb train_verb() {
  return {
      .name = "train",
      .summary = "Train a model",
      .description =
          "Ranks are threads of this process, or with --processes one process each. Started by "
          "torchrun or another launcher (RANK is set) it is one rank of that job. Ctrl-C, SIGTERM "
          "and SIGUSR1 end training after the running step, saved where --save says, with exit "
          "code 143; a second Ctrl-C or SIGTERM ends it at once. A run goes on from its "
          "checkpoints "
          "in any layout.",
      .examples = {{"lockstep train examples/tiny.toml --mock-data",
                    "a small model on made-up text"},
                   {"lockstep train run.toml --save out --save-interval 100",
                    "on the files of [data], with checkpoints and curves in out/"},
                   {"lockstep train run.toml --save out --resume --set layout.dp=4",
                    "the same run, from its newest checkpoint on, over four threads"},
                   {"lockstep train run.toml --plan plan.json --save out",
                    "divided as `lockstep plan run.toml --out plan.json` found best"},
                   {"lockstep train run.toml --mock-data --trace run.json",
                    "what was predicted and what was measured, for Perfetto"},
                   {"torchrun --no-python --nproc-per-node 4 lockstep train run.toml",
                    "as a launcher's job"}},
      .options = train_options(),
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .needs_torch = true,
#if LOCKSTEP_WITH_TORCH
      .run = run_train};
#else
      .run = nullptr};
#endif
}

}  // namespace lockstep::cli
