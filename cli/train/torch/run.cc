// lockstep train: runs a job on threads, on processes it starts, or as one rank of a launcher's
// job.
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/data/byte_tokens.h"
#include "cli/engine.h"
#include "cli/help.h"
#include "cli/plan/file.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/train/torch/log.h"
#include "cli/train/torch/run_record.h"
#include "cli/train/torch/samples.h"
#include "lockstep/base/check.h"
#include "lockstep/base/result.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/config/suggest.h"
#include "lockstep/data/corpus_tokens.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/data/token_source.h"
#include "lockstep/launch/page.h"
#include "lockstep/launch/report.h"
#include "lockstep/launch/spares.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/program/text.h"
#include "lockstep/spec/identity.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/spec.h"
#include "lockstep/spec/tokens.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/tensor/torch_version.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/run_metrics.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

extern const char* const kTextRun;  // examples/text.toml, as built in

namespace {

// What is trained on and evaluated with.
struct TrainData {
  std::unique_ptr<data::TokenSource> training;
  std::unique_ptr<data::TokenSource> validation;  // absent: the run does not evaluate
  std::string title;                              // "made-up text, seed 1234"
  std::string digest;                             // differs where samples do
};

// "web and code: 12,345 tokens to train on; the run takes 20,480, in up to 2 passes".
std::string title_of(const spec::Spec& spec, const data::CorpusTokens& tokens) {
  std::vector<std::string> names;
  std::int64_t all = 0, passes = 0;
  for (const data::Part& part : tokens.parts()) {
    names.push_back(std::filesystem::path(part.file).filename().string());
    all += part.tokens;
    passes = std::max(passes, part.epochs);
  }
  constexpr std::size_t kMostNames = 4;
  return join_parts(names.size() > kMostNames ? counted(std::ssize(names), "file") : listed(names),
                    ": ", counted(all, "token"), " to train on; the run takes ",
                    with_commas(tokens.samples() * spec.batch.seq), ", in ",
                    names.size() > 1 ? "up to " : "", counted(passes, "pass"));
}

// Made-up text. What is for validation lies far behind all that steps take.
TrainData made_up_data(const spec::Spec& spec) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  const auto text = [&](std::int64_t first) {
    return std::make_unique<data::MockTokens>(static_cast<std::uint64_t>(spec.train.seed),
                                              spec.model.vocab, /*ignore_some=*/false, first);
  };
  TrainData data;
  data.training = text(0);
  if (spec.train.eval_interval > 0) data.validation = text(kFar);
  data.title = join_parts("made-up text, seed ", spec.train.seed);
  data.digest = join_parts("made-up ", spec.train.seed);
  return data;
}

// --text: the run is on token files that its folder gets.
bool has_text(const Args& args) { return !args.texts("text").empty(); }

std::string text_tokens(const Args& args) {
  return (std::filesystem::absolute(args.text("save")) / "text").string();
}

// Puts them into the run. Refuses --text beside what says otherwise.
Result<void> use_text(const Args& args, config::Document& document, config::Report& report) {
  const auto beside = [](const char* option, const std::string& help) {
    return Error{Code::kConflict, join_parts("--text, but there is ", option, " too"), help};
  };
  if (!args.has("save"))
    return Error{Code::kConflict, "--text, but there is no --save",
                 "tokens of the text are written into the folder of the run: add --save DIR"};
  if (is_rank() && !std::filesystem::exists(text_tokens(args) + ".idx"))
    return beside("a launcher", "make token files first: `lockstep data from-text`");
  if (args.flag("mock-data")) return beside("--mock-data", "leave one of them out");
  if (args.flag("dry-run"))
    return beside("--dry-run", "a dry run writes no tokens: `lockstep data from-text` does");
  if (args.has("resume"))
    return beside("--resume",
                  join_parts("the folder has its tokens: lockstep train ", args.text("save"),
                             "/config.toml --save ", args.text("save"), " --resume"));
  if (args.has("FILE") && document.find("data.files") != nullptr)
    return beside("data.files in the run file", "leave one of them out");
  config::apply_override("data.files=" + Json::list(std::vector{text_tokens(args)}).dump(),
                         document, report);
  return {};
}

// The run as it is in force, files named from the root, so that it means the same anywhere.
config::Document in_force(config::Document document, const spec::Spec& spec) {
  std::vector<std::string> files;
  for (const std::string& file : spec.data.files)
    files.push_back(std::filesystem::absolute(file).lexically_normal().string());
  config::Report unused;
  if (!files.empty())
    config::apply_override("data.files=" + Json::list(files).dump(), document, unused);
  return document;
}

// The files of [data]. Refuses a run file that names none.
Result<TrainData> open_data(const spec::Spec& spec) {
  if (spec.data.files.empty())
    return Error{Code::kMissingKey, "`data.files` is missing: there is nothing to train on",
                 "name token files in [data], `lockstep data from-text` makes some of any text; or "
                 "train on made-up text with --mock-data"};
  std::unique_ptr<data::CorpusTokens> training = LS_TRY(spec::open_training(spec));
  TrainData data;
  data.title = title_of(spec, *training);
  data.digest = to_hex(training->digest());
  data.training = std::move(training);
  if (spec.train.eval_interval == 0) return data;
  data.validation = LS_TRY(spec::open_validation(spec, spec.train.eval_samples));
  return data;
}

// Documents, which a corpus is divided by, are no word of who has a text.
Error about_text(Error error) {
  if (error.code == Code::kTooLittleData)
    error.help =
        "a blank line ends a document, and documents are divided into training and validation: "
        "put blank lines between the parts of the text, or train on all of it with "
        "--set 'data.split=[1, 0, 0]' --set train.eval_interval=0";
  return error;
}

constexpr std::size_t kStepsKept = 5;  // as help says

std::string named(const Args& args, const char* option) {
  return args.has(option) ? args.text(option) : std::string();
}

Result<RunFiles> read_files(const Args& args, const spec::Spec& spec) {
  RunFiles files = {named(args, "trace"), named(args, "timeline"), {}};
  if (args.has("calibration")) {
    if (files.trace.empty())
      return Error{Code::kConflict,
                   join_parts("--calibration ", args.text("calibration"),
                              " is for what a trace shows as predicted, but there is no --trace"),
                   "add --trace OUT, or leave --calibration out"};
    files.calibration = LS_TRY(read_calibration_for(args.text("calibration"), spec));
  }
  for (const std::string& file : {files.trace, files.timeline})
    if (!file.empty()) LS_TRY(check_writable(file));
  return files;
}

Error conflict(const char* option, const char* why, const char* help) {
  return {Code::kConflict, join_parts("--", option, ", but ", why), help};
}

// --change lr,steps.
Result<void> read_changes(const Args& args, bool goes_on, TrainOptions& options) {
  if (!args.has("change")) return {};
  if (!goes_on) return conflict("change", "no run is resumed", "it is for --resume and --load");
  const std::string names = args.text("change");
  for (const std::string_view name : split(names, ',')) {
    const spec::IdentityKey* key = spec::find_changeable(name);
    if (key == nullptr)
      return Error{Code::kBadOptionValue,
                   join_parts("--change: `", name, "` cannot change in a run that is resumed"),
                   join_parts("what can are ", config::listed(spec::changeable()),
                              "; --weights begins a new run with the weights of another")};
    options.changed.emplace_back(key->fact);
  }
  return {};
}

Result<void> read_start(const Args& args, TrainOptions& options) {
  const bool loads = args.has("load"), weights = args.has("weights");
  const bool resumes = args.has("resume");
  if (resumes && (loads || weights))
    return conflict("resume", loads ? "there is --load too" : "there is --weights too",
                    "--resume continues from the newest checkpoint of --save; --load and --weights "
                    "name another start");
  if (loads && weights)
    return conflict("load", "there is --weights too",
                    "--load resumes a run; --weights begins one with its weights alone");
  if (resumes)
    options.start =
        args.text("resume") == "auto" ? train::Start::kResumeOrNew : train::Start::kResume;
  else if (loads || weights)
    options.start = loads ? train::Start::kContinue : train::Start::kWeights;
  options.from = named(args, loads ? "load" : "weights");
  return read_changes(args, resumes || loads, options);
}

// As the launcher says that started this rank.
Result<void> read_snapshots(TrainOptions& options) {
  const auto folder = comm::process_environment(launch::kSnapshots);
  if (!folder || !is_rank()) return {};
  const auto interval =
      number_in<std::int64_t>(comm::process_environment(launch::kSnapshotInterval).value_or(""));
  if (!interval || *interval < 1)
    return Error{Code::kUnsuitableEnvironment,
                 join_parts(launch::kSnapshots, " is set, and ", launch::kSnapshotInterval,
                            " is not a number from 1"),
                 "`lockstep launch --snapshot-interval K` sets both"};
  options.snapshots = *folder;
  options.snapshot_interval = *interval;
  return {};
}

// Refuses options that contradict each other, and files that cannot be written.
Result<TrainOptions> read_options(const Args& args, const spec::Spec& spec) {
  TrainOptions options;
  options.every = args.integer("every");
  options.oracle = args.flag("oracle");
  options.files = LS_TRY(read_files(args, spec));
  options.digests = options.oracle;
  options.timelines = options.files.any() ? kStepsKept : 0;
  options.version = version();
  options.save = named(args, "save");
  options.metrics = args.has("metrics") ? args.text("metrics") : options.save;
  options.keep = args.integer("keep");
  LS_TRY(read_snapshots(options));
  if (args.has("save-interval")) options.save_interval = args.integer("save-interval");
  if (options.save.empty())
    for (const char* option : {"save-interval", "resume"})
      if (args.has(option)) return conflict(option, "there is no --save", "add --save DIR");
  LS_TRY(read_start(args, options));
  if (const char* const flip = std::getenv("LOCKSTEP_FLIP_BIT")) {  // for tests
    if (spec.train.check_interval == 0)
      return Error{Code::kConflict, "LOCKSTEP_FLIP_BIT is set, but train.check_interval is 0",
                   "it is for tests of checks: unset it"};
    options.flip = LS_TRY(train::parse_bit_flip(flip));
  }
  return options;
}

// Refuses a directory that cannot be made, and one that has metrics unless it may.
Result<void> check_metrics(const std::string& directory, bool may_exist) {
  LS_TRY(make_directory(directory));
  const std::string path = train::metrics_path(directory);
  if (!std::filesystem::exists(path)) return {};
  if (may_exist) return check_writable(path);
  return Error{Code::kBadMetrics, join_parts("`", path, "` is there already"),
               "it tells of an earlier run: resume that one, or name another directory"};
}

// Refuses a directory that holds what another run has made, and one without a checkpoint to resume
// from, so that no run is written over and none begins with random weights by accident. What a run
// left that ended before its first checkpoint is in nobody's way.
Result<void> check_save(const TrainOptions& options) {
  if (options.save.empty()) return {};
  const auto there = checkpoint::candidates(files::real_disk(), options.save);
  if (options.start == train::Start::kResume && there.empty())
    return Error{Code::kNoCheckpoint,
                 join_parts("`", options.save, "` has no checkpoint to resume from"),
                 "--resume=auto begins a run there"};
  if (!options.resumes() && !there.empty())
    return Error{Code::kConflict,
                 join_parts("`", options.save, "` has checkpoints of an earlier run, the newest ",
                            std::filesystem::path(there.front()).filename().string()),
                 "--resume continues that run; another --save begins a new one"};
  return {};
}

// To be asked before any rank has written.
Result<void> check_places(const TrainOptions& options) {
  LS_TRY(check_save(options));
  if (options.metrics.empty()) return {};
  return check_metrics(options.metrics, options.resumes() || options.metrics == options.save);
}

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
  for (const char* option : {"save", "save-interval", "keep", "resume", "load", "weights", "change",
                             "sample", "sample-interval"})
    facts.emplace_back(join_parts("--", option), args.has(option) ? args.text(option) : "absent");
  for (const char* option : {"mock-data", "oracle", "trace", "timeline"})
    facts.emplace_back(join_parts("--", option), args.has(option) ? "given" : "absent");
  return facts;
}

train::RunEnding train_rank(const train::Job& job, const TrainData& data,
                            const TrainOptions& options, comm::World& world,
                            std::span<train::RunObserver* const> observers = {}) {
  return train::train(job, world, {data.training.get(), data.validation.get(), data.digest},
                      options, stop_on_signals(), observers);
}

class StepReports : public train::RunObserver {
 public:
  void step(std::int64_t step, const train::StepReport& /*report*/,
            std::optional<std::uint64_t> /*digest*/) override {
    launch::report_step(step + 1);
  }
};

// Of rank 0, which tells.
train::RunEnding train_first(const train::Job& job, const TrainData& data,
                             const TrainOptions& options, comm::World& world, TrainLog& log) {
  StepReports reports;  // to the launcher
  std::vector<train::RunObserver*> observers = {&log, &reports};
  train::RunMetrics metrics(
      job, {.directory = options.metrics,
            .resumes = options.resumes(),
            .may_set_aside = options.metrics == options.save,
            .version = options.version,
            .on_trouble = [&](const Error& error, std::int64_t lost) {
              log.trouble("metrics",
                          join_parts(counted(lost, "line"), " of metrics lost: ", error.message));
            }});
  if (!options.metrics.empty()) observers.push_back(&metrics);
  RunRecord record(options.save, options.document, world.size(),
                   [&](const Error& error) { log.trouble("record", error.message); });
  if (!options.save.empty()) observers.push_back(&record);
  std::optional<Samples> samples;
  if (options.sample)
    observers.push_back(
        &samples.emplace(job.model, *options.sample, options.metrics, options.resumes(), log));
  return train_rank(job, data, options, world, observers);
}

ExitCode conclude(TrainLog& log, const train::RunEnding& end, Output& output) {
  if (end.refused) return fail(output, *end.refused);
  if (end.corrupt) return fail(output, *end.corrupt);
  const ExitCode code = log.conclude(end.ending, end.measured);
  if (!end.unsaved) return code;
  Error error = *end.unsaved;
  error.help = log.way_back();
  return fail(output, error);
}

// Of the ranks that share this machine, as far as that is known. What cannot fit is refused before
// weights are drawn.
Result<void> check_memory(const train::Job& job, Rank first, int ranks) {
  struct sysinfo machine = {};
  if (job.spec.device != DeviceKind::kCpu || ::sysinfo(&machine) != 0) return {};
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
  job.workspace.drawing.between = [log, &stop = stop_on_signals()](std::int64_t elements) {
    if (stop)
      throw WorldError({Code::kInterrupted, "asked to stop while initial weights were drawn", ""});
    if (log != nullptr) log->drawn(elements);
  };
}

Result<ExitCode> run_threads(train::Job& job, const TrainData& data, const TrainOptions& options,
                             Output& output) {
  const int ranks = job.mesh.world();
  if (ranks > kMaxThreads)
    return Error{Code::kUnsuitableEnvironment,
                 join_parts(counted(ranks, "rank"), " do not fit into one process"),
                 "start one process per rank on your machines, with torchrun or srun"};
  TrainLog log(job, counted(ranks, "thread"), data.title, options, output);
  log.begin();
  watch_drawing(job, &log);
  train::RunEnding end;
  comm::run_local(ranks, [&](comm::World& world) {
    if (world.rank() == Rank{0})
      end = train_first(job, data, options, world, log);
    else
      train_rank(job, data, options, world);
  });
  return conclude(log, end, output);
}

// To the launcher. Of a batch that is still growing, whose steps have other lists, by numbers.
void show_place(const train::Job& job, comm::World& world) {
  const Coord coord = job.place(world.rank()).coord;
  std::vector<std::string> texts;
  if (job.batch(0).sequences == job.spec.batch.global_batch)
    for (const program::Op& op : job.program.list(coord))
      texts.push_back(program::op_text(job.program, coord, op));
  launch::show_ops(texts);
  launch::show_position(world.position());
}

Result<ExitCode> run_rank(train::Job& job, const TrainData& data, const TrainOptions& options,
                          Facts facts, Output& output) {
  const auto rendezvous = LS_TRY(comm::rendezvous_from(comm::process_environment));
  LS_TRY(mesh::check_world(job.spec.layout.degrees, rendezvous.world_size));
  LS_TRY(check_memory(job, rendezvous.rank, 1));
  const comm::JoinOptions joining = {
      .facts = std::move(facts),
      .stop = &stop_on_signals(),
      .tell =
          [&](const std::string& text) {
            output.err << join_parts("lockstep: ", text, "\n") << std::flush;
          },
      // Before waits for that rank expire, so that all are told its name.
      .silence = std::min(Seconds{job.spec.train.op_deadline.value / 2}, kLongestSilence)};
  const auto world =
      comm::join(job.spec.device, rendezvous, Deadline::after(kMeetingDeadline), joining);
  show_place(job, *world);
  if (rendezvous.rank != Rank{0}) {
    watch_drawing(job, nullptr);
    const train::RunEnding end = train_rank(job, data, options, *world);
    const std::optional<Error>& error = end.refused ? end.refused : end.unsaved;
    return error ? exit_code_of(error->code) : exit_code_of(end.ending);
  }
  TrainLog log(job, counted(rendezvous.world_size, "process"), data.title, options, output);
  log.begin();
  watch_drawing(job, &log);
  return conclude(log, train_first(job, data, options, *world, log), output);
}

// What would run and what every rank would take, and nothing else.
Result<ExitCode> dry_run(const train::Job& job, const TrainData& data, const TrainOptions& options,
                         const std::string& ranks, Output& output) {
  LS_TRY(check_save(options));
  std::vector<train::Prediction> all;
  for (int rank = 0; rank < job.mesh.world(); ++rank) all.push_back(train::predict(job, {rank}));
  if (output.json) {
    const auto to_json = [](const train::Prediction& one) {
      return Json::object({{"peak_bytes", one.peak_bytes}, {"sent_bytes", one.sent().value}});
    };
    return print_json(output, Json::object({{"schema", "lockstep.train-dry-run/1"},
                                            {"model", job.spec.model.name},
                                            {"parameters", count(job.model).total},
                                            {"layout", layout_json(job.spec.layout, true)},
                                            {"data", data.title},
                                            {"ranks", Json::list(all, to_json)}}));
  }
  TrainLog(job, ranks, data.title, options, output).begin();
  const auto fullest = std::ranges::max_element(all, {}, &train::Prediction::peak_bytes);
  if (fullest->peak_bytes > all[0].peak_bytes)
    output.row(2, style::kDim, 11, "",
               join_parts(to_text(Bytes{fullest->peak_bytes}), " at that of rank ",
                          fullest - all.begin(), ", which is the highest, in ", fullest->peak_op));
  output.out << "\ndry run: nothing was trained or written\n";
  return ExitCode::kOk;
}

// What is on disk is looked at before ranks start, or by rank 0 of a launcher's: another would see
// what that has just written.
bool looks_at_places() { return comm::process_environment("RANK").value_or("0") == "0"; }

}  // namespace

Result<ExitCode> run_train(const Args& args, Output& output) {
  if (!launch::await_place()) return ExitCode::kOk;
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  stop_on_signals();
  LS_TRY(comm::check_alone(comm::process_environment));
  config::Report report;
  auto document = load_run(args, report, has_text(args) ? kTextRun : "");
  if (document && !args.has("FILE") && document->find("model") == nullptr)
    return Error{Code::kMissingKey, "there is nothing to train: name a run file",
                 "`lockstep init run.toml` writes one; a run folder has its own, config.toml; "
                 "`--text my.txt --save out` needs none"};
  if (document && has_text(args)) LS_TRY(use_text(args, *document, report));
  if (document) document = with_plan(args, *std::move(document), report);
  const auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  if (spec)
    for (const Error& error :
         spec::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      report.add(error);
  if (!spec || !report.ok()) return fail(output, report, subject_of(args));
  if (spec->device != DeviceKind::kCpu) LS_TRY(comm::check_backend(spec->device));
  train::Job job = LS_TRY(train::make_job(*spec));
  TrainOptions options = LS_TRY(read_options(args, *spec));
  options.document = in_force(*document, *spec);
  if (auto sample = LS_TRY(read_samples(args, *spec, output.json)))
    add_samples(job, *std::move(sample), options);
  const bool is_dry = args.flag("dry-run");
  if (is_dry && is_rank())
    return conflict("dry-run", "this is one rank of a launcher's job",
                    "it tells of all ranks: start it once, without a launcher");
  if (looks_at_places() && !is_dry) LS_TRY(check_places(options));
  if (has_text(args) && !is_rank()) {  // ranks that this process starts find it done
    LS_TRY(make_directory(options.save));
    LS_TRY(write_byte_tokens(args.texts("text"), text_tokens(args), data::DocumentEnd::kBlankLine));
  }
  Result<TrainData> opened =
      args.flag("mock-data") ? Result<TrainData>(made_up_data(*spec)) : open_data(*spec);
  if (!opened.ok()) return has_text(args) ? about_text(opened.error()) : opened.error();
  const TrainData data = *std::move(opened);
  if (is_rank()) return run_rank(job, data, options, facts_of(*document, args), output);
  const bool as_processes = args.flag("processes") || job.spec.device != DeviceKind::kCpu;
  if (is_dry)
    return dry_run(job, data, options,
                   counted(job.mesh.world(), as_processes ? "process" : "thread"), output);
  LS_TRY(check_memory(job, Rank{0}, job.mesh.world()));
  if (as_processes) return run_as_processes(job.mesh.world(), output);
  return run_threads(job, data, options, output);
}

}  // namespace lockstep::cli
