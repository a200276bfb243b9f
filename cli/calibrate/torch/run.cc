// lockstep calibrate: measures how long the ops of a run take on this machine.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/engine.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/result.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/planner/calibrated.h"
#include "lockstep/spec/legal.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/tensor/torch_version.h"
#include "lockstep/train/calibrate.h"

namespace lockstep::cli {
namespace {

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

// Ranks that can be busy at once: those that a launcher has started, perhaps on several machines,
// else as many as this one has cores.
int cores_at_hand() {
  if (is_rank())
    if (const auto launched = comm::rendezvous_from(comm::process_environment); launched.ok())
      return launched->world_size;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Joins the processes that a launcher started; nothing where it started none, and ranks are
// threads. Refuses a world of another size.
Result<std::unique_ptr<comm::World>> join(int ranks) {
  if (!is_rank()) return std::unique_ptr<comm::World>();
  const auto rendezvous = LS_TRY(comm::rendezvous_from(comm::process_environment));
  if (rendezvous.world_size != ranks)
    return Error{Code::kDegreesDoNotMatchWorld,
                 join_parts("the world has ", rendezvous.world_size,
                            " ranks, this run is calibrated on ", ranks),
                 "start as many, or use --processes"};
  return comm::join(DeviceKind::kCpu, rendezvous, Deadline::after(Seconds{60}));
}

// Complete, with date, versions and processor, where this process leads. Every rank calls it, with
// the same names in the same order and each of them once.
cost::Calibration measure(comm::World* world, const train::Calibrator& calibrator,
                          const std::string& name, Seconds budget) {
  cost::Calibration made;
  run_on_ranks(world, calibrator.ranks(), [&](comm::World& rank) {
    cost::Calibration own = calibrator.run(rank, name, budget);
    if (rank.rank() == Rank{0}) made = std::move(own);
  });
  made.date = today();
  made.lockstep = version();
  made.torch = tensor::torch_version();
  made.cpu = processor();
  made.ranks_are = world != nullptr ? "processes" : "threads";
  return made;
}

struct Part {
  std::string file;  // inside the directory
  train::Calibrator calibrator;
};

// "mb4-tp2.json", "mb4-tp2-selective.json" where rows are recomputed, "mb4-tp2-etp1.json" of whole
// experts.
std::string file_name(const spec::Spec& spec) {
  const std::int64_t tp = spec.layout.degrees.tp;
  const model::Drop rows = spec.layout.recompute.drop.rest();
  std::string name = join_parts("mb", spec.batch.microbatch, "-tp", tp);
  if (tp > 1 && !spec.layout.sp) name += "-nosp";
  if (const std::int64_t etp = spec.layout.degrees.etp; spec.model.moe.experts > 0 && etp != tp)
    name += join_parts("-etp", etp);
  if (rows != model::kKeepAll) name += "-" + spec::to_text(rows);
  return name + ".json";
}

// A layout for each calibration that the layouts of the run on so many ranks need.
Result<std::vector<spec::Spec>> needed(const spec::Spec& run, int ranks) {
  const auto machine = LS_TRY(cluster::cluster_from_name(join_parts("cpu-gloo:", ranks)));
  const cost::ModelShape shape = cost::shape_of(run.model);
  const planner::Question question =
      planner::calibrated_question({.shape = &shape,
                                    .cluster = &machine,
                                    .rates = &cluster::rates_of(machine.device),
                                    .devices = ranks,
                                    .seq = run.batch.seq,
                                    .global_batch = run.batch.global_batch},
                                   run.train.dtype);
  const auto search = planner::CalibratedSearch::create(question, run.model, run.train.dtype, {});
  if (!search.ok())
    return Error{search.error().code, search.error().message, "calibrate fewer --ranks"};
  std::vector<spec::Spec> found = search->unmeasured();
  for (spec::Spec& spec : found) spec.train = run.train;
  if (found.empty())
    return Error{Code::kNothingDivides,
                 join_parts("no layout of ", counted(ranks, "rank"), " can run this model with ",
                            counted(run.batch.global_batch, "sequence"), " in a step"),
                 "try fewer --ranks, or another batch.global_batch"};
  return found;
}

Result<std::vector<Part>> parts_of(const spec::Spec& run, int ranks) {
  const auto specs = LS_TRY(needed(run, ranks));
  std::vector<Part> parts;
  for (const spec::Spec& spec : specs) {
    train::Calibrator calibrator = LS_TRY(train::Calibrator::create(spec, ranks));
    parts.push_back({file_name(spec), std::move(calibrator)});
  }
  return parts;
}

// `plan` reads all of the directory, so nothing else may be in it.
Result<void> check_directory(const std::string& directory, const std::vector<Part>& parts) {
  LS_TRY(make_directory(directory));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") && std::ranges::find(parts, name, &Part::file) == parts.end())
      return Error{Code::kConflict,
                   join_parts("`", directory, "` holds ", name,
                              ", which is none of the calibrations of this run"),
                   "remove it, or name another directory with --out"};
  }
  return check_writable((std::filesystem::path(directory) / parts.front().file).string());
}

void print_circumstances(const cost::Calibration& made, Output& output) {
  output.out << counted(made.ranks, made.ranks_are == "threads" ? "thread" : "process") << " busy, "
             << made.cpu << ", torch " << made.torch << "\n\n";
}

// Tells of each calibration when it is made.
class AllReport {
 public:
  AllReport(const std::vector<Part>& parts, Output& output) : parts_(parts), output_(output) {
    for (const Part& part : parts) width_ = std::max(width_, static_cast<int>(part.file.size()));
  }

  void begin(std::size_t part) const {
    if (output_.live && !output_.json)
      output_.status(join_parts(part + 1, " of ", parts_.size(), ": ", parts_[part].file));
  }

  void made(std::size_t part, const cost::Calibration& calibration, Seconds took) {
    if (output_.live && !output_.json) output_.status("");
    files_.push(Json::object({{"file", parts_[part].file},
                              {"seconds", took.value},
                              {"slowdown", calibration.slowdown}}));
    if (output_.json) return;
    if (part == 0) {
      print_circumstances(calibration, output_);
      line("file", "block.F", "block.B", "spread", "took");
    }
    const cost::PassTime& forward = calibration.passes.at("block.F");
    const cost::PassTime& backward = calibration.passes.at("block.B");
    line(parts_[part].file, to_text(forward.time), to_text(backward.time),
         strf("%.1f %%", 100 * std::max(forward.spread, backward.spread)), to_text(took));
  }

  void end(const std::string& directory, Seconds took) {
    if (output_.json)
      print_json(output_, Json::object({{"schema", "lockstep.calibrate/1"},
                                        {"written", directory},
                                        {"ranks", parts_.front().calibrator.ranks()},
                                        {"seconds", took.value},
                                        {"files", files_}}));
    else
      output_.out << "\nwrote " << counted(std::ssize(parts_), "file") << " into " << directory
                  << " after " << to_text(took) << "; plan with --calibration " << directory
                  << '\n';
  }

 private:
  void line(const std::string& file, const std::string& forward, const std::string& backward,
            const std::string& spread, const std::string& took) const {
    output_.out << strf("%-*s  %8s  %8s  %7s  %8s\n", width_, file.c_str(), forward.c_str(),
                        backward.c_str(), spread.c_str(), took.c_str())
                << std::flush;
  }

  const std::vector<Part>& parts_;
  Output& output_;
  int width_ = 0;
  Json files_ = Json::array();
};

// What is left of the time is split among those left. The largest microbatches come first:
// where one step of each probe is more than their share, the others get less.
Result<ExitCode> measure_all(const std::vector<Part>& parts, const std::string& directory,
                             Seconds budget, comm::World* world, Output& output) {
  AllReport report(parts, output);
  const RealClock clock;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Seconds begun = clock.now().since_start;
    const double left = std::max(0.0, (budget - begun).value);
    if (leads(world)) report.begin(i);
    const cost::Calibration made = measure(world, parts[i].calibrator, parts[i].file,
                                           {left / static_cast<double>(parts.size() - i)});
    if (!leads(world)) continue;
    const std::string file = (std::filesystem::path(directory) / parts[i].file).string();
    LS_TRY(write_text(file, write_calibration(made)));
    report.made(i, made, clock.now().since_start - begun);
  }
  if (leads(world)) report.end(directory, clock.now().since_start);
  return ExitCode::kOk;
}

// --all: a file for each microbatch, tensor degree and set of recomputed rows, in the directory
// --out, which is what `lockstep plan --calibration` needs to time every layout.
Result<ExitCode> calibrate_all(const Args& args, Output& output) {
  config::Report mistakes;
  const auto document = load_run(args, mistakes);
  // A layout is what `plan` will choose, and a cluster would count ranks.
  const auto spec = document ? spec::read_spec(without(*document, {"layout", "cluster"}), mistakes)
                             : std::nullopt;
  if (!spec || !mistakes.ok()) return fail(output, mistakes, subject_of(args));
  const int cores = cores_at_hand();
  const int ranks = args.has("ranks") ? static_cast<int>(args.integer("ranks")) : cores;
  if (ranks > cores)
    return Error{
        Code::kUnsuitableEnvironment,
        join_parts("--ranks ", ranks, " cannot be busy at once on ", counted(cores, "core")),
        join_parts("at most --ranks ", cores)};
  const auto parts = LS_TRY(parts_of(*spec, ranks));
  const std::string directory = args.has("out") ? args.text("out") : "calibrations";
  LS_TRY(check_directory(directory, parts));
  if (args.flag("processes") && !is_rank()) return run_as_processes(ranks, output);
  const auto world = LS_TRY(join(ranks));
  return measure_all(parts, directory, {args.has("seconds") ? args.real("seconds") : 60},
                     world.get(), output);
}

std::string rate_text(double seconds_per_byte) {
  return seconds_per_byte > 0 ? strf("%.2f GB/s", 1e-9 / seconds_per_byte) : "-";
}

// Elements and bytes take parts of a nanosecond.
std::string per_unit(double seconds) {
  return seconds < 1e-7 ? strf("%.3g ns", 1e9 * seconds) : to_text(Seconds{seconds});
}

void print_passes(const cost::Calibration& made, Output& output) {
  Rows rows = {{"pass", "time", "spread", "samples"}};
  for (const auto& [name, pass] : made.passes)
    rows.push_back({name, to_text(pass.time), strf("%.1f %%", 100 * pass.spread),
                    std::to_string(pass.samples)});
  rows.push_back({"load", to_text(made.load.time), strf("%.1f %%", 100 * made.load.spread),
                  std::to_string(made.load.samples)});
  print_table(output.out, rows, "lrrr");
  output.out << '\n';
}

void print_lines(const cost::Calibration& made, Output& output) {
  Rows rows = {{"over a size", "at none", "for each", "fit within"}};
  const auto add = [&](const std::string& name, const cost::Line& line, const std::string& unit) {
    rows.push_back({name, to_text(Seconds{line.alpha}), per_unit(line.beta) + " " + unit,
                    strf("%.1f %%", 100 * line.residual)});
  };
  add("count", made.count, "a microbatch");
  add("norm", made.norm, "an element");
  add("update", made.update, "an element");
  add("accumulate", made.accumulate, "a byte");
  print_table(output.out, rows, "lrrr");
  if (made.collectives.empty()) return;
  rows = {{"collective", "ranks", "at least", "rate", "issue", "lane", "finish"}};
  const auto within = [](const cost::Line& line) { return strf("%.0f %%", 100 * line.residual); };
  for (const cost::CollectiveTime& one : made.collectives)
    rows.push_back({std::string(to_text(one.kind)), std::to_string(one.members),
                    to_text(one.total(0)),
                    rate_text(one.issue.beta + one.lane.beta + one.finish.beta), within(one.issue),
                    within(one.lane), within(one.finish)});
  output.out << '\n';
  print_table(output.out, rows, "lrrrrrr");
}

Result<ExitCode> report(const cost::Calibration& made, const std::string& file, Seconds took,
                        Output& output) {
  LS_TRY(write_text(file, write_calibration(made)));
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.calibrate/1"},
                                            {"written", file},
                                            {"ranks", made.ranks},
                                            {"seconds", took.value},
                                            {"slowdown", made.slowdown}}));
  print_circumstances(made, output);
  print_passes(made, output);
  print_lines(made, output);
  output.out << '\n'
             << wrapped(strf("Computing beside communication takes %.2f times as long. Spread is "
                             "half the distance of the quartiles; `fit within` and the last three "
                             "columns are the largest distance of a measurement from its line.",
                             made.slowdown),
                        0, 0, output.width)
             << "\nwrote " << file << " after " << to_text(took) << '\n';
  return ExitCode::kOk;
}

}  // namespace

Result<ExitCode> run_calibrate(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  if (args.flag("all")) return calibrate_all(args, output);
  if (args.has("ranks"))
    return Error{Code::kConflict,
                 "--ranks is for --all; without it a run has the ranks of its layout",
                 "add --all, or set them: --set layout.dp=2"};
  config::Report mistakes;
  const auto document = load_run(args, mistakes);
  const auto spec = document ? spec::read_spec(*document, mistakes) : std::nullopt;
  if (spec)
    for (const Error& error :
         spec::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      mistakes.add(error);
  if (!spec || !mistakes.ok()) return fail(output, mistakes, subject_of(args));
  LS_TRY(check_on_cpu(*spec, "calibrate"));
  const auto calibrator = LS_TRY(train::Calibrator::create(*spec, cores_at_hand()));
  const std::string file = args.has("out") ? args.text("out") : "calibration.json";
  LS_TRY(check_writable(file));
  if (args.flag("processes") && !is_rank()) return run_as_processes(calibrator.ranks(), output);
  const RealClock clock;
  const auto world = LS_TRY(join(calibrator.ranks()));
  const cost::Calibration made =
      measure(world.get(), calibrator, "", {args.has("seconds") ? args.real("seconds") : 15});
  if (!leads(world.get())) return ExitCode::kOk;
  return report(made, file, clock.now().since_start, output);
}

}  // namespace lockstep::cli
