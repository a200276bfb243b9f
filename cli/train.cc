// lockstep train: runs a job on threads, on processes it starts, or as one rank of a launcher's job.
#include <map>
#include <string>
#include <vector>

#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/run_trace.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#if LOCKSTEP_WITH_TORCH
#include <algorithm>
#include <cmath>
#include <ostream>

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

struct Wishes {
  std::int64_t every = 1;  // steps between two lines
  RunFiles files = {};
};

// What rank 0 tells while training. Silent for --json until the end.
class Log {
 public:
  Log(const train::Job& job, std::string ranks, const Wishes& wishes, Output& output)
      : job_(job),
        prediction_(train::predict(job, Rank{0})),
        predictions_{{job.spec.batch.global_batch, prediction_}},
        ranks_(std::move(ranks)),
        every_(wishes.every),
        files_(wishes.files),
        output_(output) {}

  void begin() const {
    if (output_.json) return;
    const plan::Spec& spec = job_.spec;
    const std::string name = spec.model.name.empty() ? "a model" : spec.model.name;
    output_.out << bold(name) << " on " << ranks_ << ": " << to_text(spec.layout) << "\n\n";
    row("model", join_parts(counted(count(job_.model).total, "parameter"), " in ",
                            to_text(spec.train.dtype)));
    const std::int64_t copies = spec.layout.degrees.dp;
    row("batch",
        join_parts(counted(spec.batch.global_batch, "sequence"), " of ",
                   counted(spec.batch.seq, "token"),
                   " a step: ", copies == 1 ? "" : join_parts(copies, " copies x "),
                   counted(spec.num_microbatches(), "microbatch"), " of ", spec.batch.microbatch));
    if (const plan::BatchRamp& ramp = spec.batch.ramp; !ramp.is_none())
      row("", join_parts("from ", ramp.start, " on, ", ramp.increment,
                         " more at a time, over the first ", counted(ramp.samples, "sample")));
    row("data", join_parts("made-up text, seed ", spec.train.seed));
    if (measures_noise())
      row("noise",
          join_parts("scale in tokens, averaged over ", counted(spec.train.noise_scale, "step")));
    row("predicted", join_parts(to_text(Bytes{prediction_.peak_bytes}),
                                " of tensors at the peak of rank 0, in ", prediction_.peak_op));
    if (job_.mesh.world() > 1)
      row("", join_parts(to_text(prediction_.sent), " sent by rank 0 in every step"));
    output_.out << "\n   step      loss  grad norm" << (measures_noise() ? "  noise scale" : "")
                << "     time   tokens/s      peak      sent\n";
  }

  void step(std::int64_t step, const train::StepReport& report, bool is_last) {
    reports_.push_back(report);
    time_ += report.time;
    tokens_ += report.tokens;
    ++steps_;
    const bool is_due =
        step == 0 || (step + 1) % every_ == 0 || is_last || report.stop || !report.updated;
    if (output_.json || !is_due) return;
    const double rate = static_cast<double>(tokens_) / time_.value;
    output_.out << strf("  %5lld  %8.5f  %9.4f", static_cast<long long>(step + 1), report.loss,
                        report.grad_norm)
                << (measures_noise() ? strf("  %11s", noise_text(report).c_str()) : "")
                << strf("  %7s  %9s  %8s  %8s  ",
                        to_text(Seconds{time_.value / static_cast<double>(steps_)}).c_str(),
                        with_commas(static_cast<std::int64_t>(rate)).c_str(),
                        to_text(Bytes{report.peak_bytes}).c_str(), to_text(report.sent).c_str())
                << compared(report) << std::endl;
    time_ = {};
    tokens_ = steps_ = 0;
  }

  ExitCode conclude(train::Ending ending, const cost::RunTimeline& measured) {
    Result<std::vector<std::string>> written = std::vector<std::string>();
    if (!measured.steps.empty())
      written = write_run_files(files_, job_.spec, job_.program, measured);
    if (output_.json) print_json(output_, json(ending));
    if (!written.ok()) return fail(output_, written.error());
    const auto steps = static_cast<std::int64_t>(reports_.size());
    if (ending == train::Ending::kDiverged)
      return fail(output_,
                  Error{Code::kDiverged,
                        join_parts("loss or gradient norm of step ", steps, " is not finite"),
                        "that step changed nothing; try a smaller train.lr, or train.clip = 1"});
    if (output_.json) return exit_code_of(ending);
    Seconds time;
    std::int64_t tokens = 0;
    for (const train::StepReport& report : reports_) {
      time += report.time;
      tokens += report.tokens;
    }
    output_.out << '\n'
                << (ending == train::Ending::kStopped ? "stopped as asked, after " : "trained ")
                << counted(steps, "step") << " on " << counted(tokens, "token") << " in "
                << to_text(time)
                << strf(": loss %.5f -> %.5f\n", reports_.front().loss, reports_.back().loss);
    for (const std::string& file : *written) output_.out << "wrote " << file << '\n';
    return exit_code_of(ending);
  }

  static ExitCode exit_code_of(train::Ending ending) {
    return ending == train::Ending::kFinished  ? ExitCode::kOk
           : ending == train::Ending::kStopped ? ExitCode::kTerminated
                                               : ExitCode::kRunFailed;
  }

 private:
  bool measures_noise() const { return job_.program.step.noise; }
  static std::string noise_text(const train::StepReport& report) {
    if (!report.noise_scale) return "-";
    const double tokens = *report.noise_scale;
    return std::abs(tokens) < 1e8 ? with_commas(std::llround(tokens)) : strf("%.4g", tokens);
  }
  static void add_noise(const train::StepReport& report, Json& step) {
    step.set("first_grad_norm", std::sqrt(report.first.squares));
    step.set("first_tokens", report.first.tokens);
    step.set("noise_scale", report.noise_scale ? Json(*report.noise_scale) : Json());
  }
  std::string bold(const std::string& text) const {
    return output_.colour ? join_parts("\x1b[1m", text, "\x1b[0m") : text;
  }
  std::string dim(const std::string& text) const {
    return output_.colour ? join_parts("\x1b[2m", text, "\x1b[0m") : text;
  }
  void row(const char* label, const std::string& text) const {
    constexpr int kIndent = 13;
    output_.out << "  " << dim(strf("%-11s", label))
                << wrapped(text, kIndent, kIndent, output_.width);
  }

  // Whether memory and traffic were what was predicted.
  std::string compared(const train::StepReport& report) {
    auto known = predictions_.find(report.sequences);
    if (known == predictions_.end())
      known = predictions_
                  .emplace(report.sequences,
                           train::predict(with_batch(job_, report.sequences), Rank{0}))
                  .first;
    const train::Prediction& foreseen = known->second;
    if (report.peak_bytes == foreseen.peak_bytes && report.sent == foreseen.sent)
      return dim("as predicted");
    const auto off = [](std::int64_t measured, std::int64_t predicted, const char* what) {
      if (measured == predicted) return std::string();
      return strf("%s %+.2g %%", what,
                  100.0 * static_cast<double>(measured - predicted) /
                      static_cast<double>(std::max<std::int64_t>(predicted, 1)));
    };
    const std::string peak = off(report.peak_bytes, foreseen.peak_bytes, "peak");
    const std::string sent = off(report.sent.value, foreseen.sent.value, "sent");
    return join_parts(peak, peak.empty() || sent.empty() ? "" : ", ", sent);
  }

  Json json(train::Ending ending) const {
    Json steps = Json::array();
    for (const train::StepReport& report : reports_) {
      Json step = Json::object({{"sequences", report.sequences},
                                {"loss", report.loss},
                                {"grad_norm", report.grad_norm},
                                {"tokens", report.tokens},
                                {"updated", report.updated},
                                {"seconds", report.time.value},
                                {"peak_bytes", report.peak_bytes},
                                {"sent_bytes", report.sent.value}});
      if (measures_noise()) add_noise(report, step);
      steps.push(std::move(step));
    }
    return Json::object({{"schema", "lockstep.train/1"},
                         {"model", job_.spec.model.name},
                         {"parameters", count(job_.model).total},
                         {"layout", to_text(job_.spec.layout)},
                         {"ranks", job_.mesh.world()},
                         {"predicted_peak_bytes", prediction_.peak_bytes},
                         {"predicted_sent_bytes", prediction_.sent.value},
                         {"ending", ending == train::Ending::kFinished  ? "finished"
                                    : ending == train::Ending::kStopped ? "stopped"
                                                                        : "diverged"},
                         {"steps", std::move(steps)}});
  }

  const train::Job& job_;
  const train::Prediction prediction_;                     // of a step of the whole batch
  std::map<std::int64_t, train::Prediction> predictions_;  // by sequences
  const std::string ranks_;
  const std::int64_t every_;
  const RunFiles files_;
  Output& output_;
  std::vector<train::StepReport> reports_;
  Seconds time_;  // since the last line, as are those below
  std::int64_t tokens_ = 0, steps_ = 0;
};

// What every rank does; the one with a log also tells.
struct RankEnding {
  train::Ending ending = train::Ending::kFinished;
  cost::RunTimeline measured = {};  // of all ranks, when that is wanted
};

RankEnding train_rank(const train::Job& job, const Wishes& wishes, comm::World& world, Log* log) {
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

ExitCode run_threads(const train::Job& job, const Wishes& wishes, Output& output) {
  const int ranks = job.mesh.world();
  if (ranks > kMaxThreads)
    return fail(output,
                Error{Code::kUnsuitableEnvironment,
                      join_parts(counted(ranks, "rank"), " do not fit into one process"),
                      "start one process per rank on your machines, with torchrun or srun"});
  Log log(job, counted(ranks, "thread"), wishes, output);
  log.begin();
  RankEnding end;
  comm::run_local(ranks, [&](comm::World& world) {
    const bool tells = world.rank() == Rank{0};
    RankEnding own = train_rank(job, wishes, world, tells ? &log : nullptr);
    if (tells) end = std::move(own);
  });
  return log.conclude(end.ending, end.measured);
}

ExitCode run_rank(const train::Job& job, const Wishes& wishes, Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  const auto fits = mesh::check_world(job.spec.layout.degrees, rendezvous->world_size);
  if (!fits.ok()) return fail(output, fits.error());
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(kMeetingDeadline));
  if (rendezvous->rank != Rank{0})
    return Log::exit_code_of(train_rank(job, wishes, *world, nullptr).ending);
  Log log(job, counted(rendezvous->world_size, "process"), wishes, output);
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
  Wishes wishes = {args.integer("every"), {named("trace"), named("timeline"), {}}};
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
