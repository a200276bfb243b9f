// lockstep train: runs a job on threads, on processes it starts, or as one rank of a launcher's job.
#include <sys/sysinfo.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/help.h"
#include "cli/plan/file.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/torch/engine.h"
#include "cli/train/torch/data.h"
#include "cli/train/torch/log.h"
#include "cli/train/torch/wishes.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/spec.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/tensor/torch_version.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/run_metrics.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {
namespace {

constexpr Seconds kMeetingDeadline = {60};
constexpr Seconds kLongestSilence = {60};  // of a rank's heartbeat, which comes every 0.1 s
constexpr int kMaxThreads = 256;

using Facts = std::vector<std::pair<std::string, std::string>>;

// What all ranks must have been started with alike.
Facts facts_of(const config::Document& document, const Args& args) {
  Facts facts = {{"lockstep", version()}, {"torch", tensor::torch_version()}};
  const config::FieldTable& table = spec::run_fields();
  for (const config::Field& field : table.fields()) {
    const config::Entry* const entry = document.find(field.path);
    const config::Value* const value = entry ? &entry->value : table.initial_of(field.path);
    if (value != nullptr) facts.emplace_back(field.path, to_text(*value));
  }
  for (const char* option : {"save", "save-interval", "keep", "resume", "load", "weights"})
    facts.emplace_back(join_parts("--", option), args.has(option) ? args.text(option) : "absent");
  for (const char* option : {"mock-data", "oracle", "trace", "timeline"})
    facts.emplace_back(join_parts("--", option), args.has(option) ? "given" : "absent");
  return facts;
}

train::RunEnding train_rank(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                            comm::World& world,
                            std::span<train::RunObserver* const> observers = {}) {
  return train::train(job, world, {data.training.get(), data.held_out.get(), data.digest}, wishes,
                      stop_on_signals(), observers);
}

// Of rank 0, which tells.
train::RunEnding train_first(const train::Job& job, const TrainData& data,
                             const TrainWishes& wishes, comm::World& world, TrainLog& log) {
  std::vector<train::RunObserver*> observers = {&log};
  train::RunMetrics metrics(
      job, {.directory = wishes.metrics,
            .resumes = wishes.resumes(),
            .may_set_aside = wishes.metrics == wishes.save,
            .version = wishes.version,
            .on_trouble = [&](const Error& error, std::int64_t lost) {
              log.trouble("metrics",
                          join_parts(counted(lost, "line"), " of metrics lost: ", error.message));
            }});
  if (!wishes.metrics.empty()) observers.push_back(&metrics);
  return train_rank(job, data, wishes, world, observers);
}

ExitCode conclude(TrainLog& log, const train::RunEnding& end, Output& output) {
  if (end.refused) return fail(output, *end.refused);
  const ExitCode code = log.conclude(end.ending, end.measured);
  if (!end.unsaved) return code;
  Error error = *end.unsaved;
  error.help = log.way_back();
  return fail(output, error);
}

// Of the ranks that share this machine, as far as that is known. What cannot fit is refused before weights are drawn.
Result<void> check_memory(const train::Job& job, Rank first, int ranks) {
  struct sysinfo machine = {};
  if (::sysinfo(&machine) != 0) return {};
  const Bytes all = {static_cast<std::int64_t>((machine.totalram + machine.totalswap) *
                                               static_cast<std::uint64_t>(machine.mem_unit))};
  Bytes needed;
  for (int i = 0; i < ranks; ++i)
    needed.value += train::predict(job, Rank{first.value + i}).peak_bytes;
  if (needed <= all) return {};
  return Error{
      Code::kUnsuitableEnvironment,
      join_parts("tensors of ", counted(ranks, "rank"), " take ", to_text(needed),
                 " at their peak; this machine has ", to_text(all), " of memory and swap"),
      "`lockstep plan` finds layouts that shard more; fewer layers, a shorter batch.seq or a "
      "smaller batch.microbatch take less"};
}

// A signal ends the draw of weights, which may take minutes; rank 0 tells how far it is.
void watch_drawing(train::Job& job, TrainLog* log) {
  job.workspace.drawing.between = [log](std::int64_t elements) {
    if (stop_on_signals())
      throw WorldError({Code::kInterrupted, "asked to stop while initial weights were drawn", ""});
    if (log != nullptr) log->drawn(elements);
  };
}

ExitCode run_threads(train::Job& job, const TrainData& data, const TrainWishes& wishes,
                     Output& output) {
  const int ranks = job.mesh.world();
  if (ranks > kMaxThreads)
    return fail(output,
                Error{Code::kUnsuitableEnvironment,
                      join_parts(counted(ranks, "rank"), " do not fit into one process"),
                      "start one process per rank on your machines, with torchrun or srun"});
  TrainLog log(job, counted(ranks, "thread"), data.title, wishes, output);
  log.begin();
  watch_drawing(job, &log);
  train::RunEnding end;
  comm::run_local(ranks, [&](comm::World& world) {
    if (world.rank() == Rank{0})
      end = train_first(job, data, wishes, world, log);
    else
      train_rank(job, data, wishes, world);
  });
  return conclude(log, end, output);
}

ExitCode run_rank(train::Job& job, const TrainData& data, const TrainWishes& wishes, Facts facts,
                  Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  const auto fits = mesh::check_world(job.spec.layout.degrees, rendezvous->world_size);
  if (!fits.ok()) return fail(output, fits.error());
  if (const auto can = check_memory(job, rendezvous->rank, 1); !can.ok())
    return fail(output, can.error());
  const comm::JoinOptions options = {
      .facts = std::move(facts),
      .stop = &stop_on_signals(),
      .tell =
          [&](const std::string& text) {
            output.err << join_parts("lockstep: ", text, "\n") << std::flush;
          },
      // Before waits for that rank expire, so that all are told its name.
      .silence = std::min(Seconds{job.spec.train.op_deadline.value / 2}, kLongestSilence)};
  const auto world =
      comm::join(DeviceKind::kCpu, *rendezvous, Deadline::after(kMeetingDeadline), options);
  if (rendezvous->rank != Rank{0}) {
    watch_drawing(job, nullptr);
    const train::RunEnding end = train_rank(job, data, wishes, *world);
    const std::optional<Error>& error = end.refused ? end.refused : end.unsaved;
    return error ? exit_code_of(error->code) : exit_code_of(end.ending);
  }
  TrainLog log(job, counted(rendezvous->world_size, "process"), data.title, wishes, output);
  log.begin();
  watch_drawing(job, &log);
  return conclude(log, train_first(job, data, wishes, *world, log), output);
}

// What is on disk is looked at before ranks start, or by rank 0 of a launcher's: another would see
// what that has just written.
bool looks_at_places() { return comm::process_environment("RANK").value_or("0") == "0"; }

}  // namespace

ExitCode run_train(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  stop_on_signals();
  if (const auto alone = comm::check_alone(comm::process_environment); !alone.ok())
    return fail(output, alone.error());
  config::Report report;
  auto document = load_run(args, report);
  if (document) document = with_plan(args, *std::move(document), report);
  const auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  if (spec)
    for (const Error& error :
         spec::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      report.add(error);
  if (!spec || !report.ok()) return fail(output, report, subject_of(args));
  Result<train::Job> job = train::make_job(*spec);
  if (!job.ok()) return fail(output, job.error());
  const Result<TrainWishes> wishes = read_wishes(args, *spec);
  if (!wishes.ok()) return fail(output, wishes.error());
  if (looks_at_places())
    if (const Result<void> can = check_places(*wishes); !can.ok()) return fail(output, can.error());
  const Result<TrainData> data =
      args.flag("mock-data") ? Result<TrainData>(made_up_data(*spec)) : open_data(*spec);
  if (!data.ok()) return fail(output, data.error());
  if (is_rank()) return run_rank(*job, *data, *wishes, facts_of(*document, args), output);
  if (const auto can = check_memory(*job, Rank{0}, job->mesh.world()); !can.ok())
    return fail(output, can.error());
  if (args.flag("processes")) return run_as_processes(job->mesh.world(), output);
  return run_threads(*job, *data, *wishes, output);
}

}  // namespace lockstep::cli
