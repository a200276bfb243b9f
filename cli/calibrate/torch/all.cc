#include "cli/calibrate/torch/all.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/calibrate/torch/crew.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "lockstep/base/clock.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/planner/calibrated.h"

namespace lockstep::cli {
namespace {

struct Part {
  std::string file;  // inside the directory
  train::Calibrator calibrator;
};

// "mb4-tp2.json", "mb4-tp2-cheap.json" where rows are recomputed.
std::string file_name(const spec::Spec& spec) {
  const std::int64_t tp = spec.layout.degrees.tp;
  const spec::Recompute rows = spec::rest_of(spec.layout.recompute);
  std::string name = join_parts("mb", spec.batch.microbatch, "-tp", tp);
  if (tp > 1 && !spec.layout.sp) name += "-nosp";
  if (!rows.block && rows != spec::kKeepAll) name += "-" + to_text(rows);
  return name + ".json";
}

// A layout for each calibration that the layouts of the run on so many ranks need.
Result<std::vector<spec::Spec>> needed(const spec::Spec& run, int ranks) {
  const auto machine = cluster::cluster_from_name(join_parts("cpu-gloo:", ranks));
  if (!machine.ok()) return machine.error();
  const planner::Question question =
      planner::runnable({.shape = cost::shape_of(run.model),
                         .cluster = &*machine,
                         .rates = &cluster::rates_of(machine->device),
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
  const auto specs = needed(run, ranks);
  if (!specs.ok()) return specs.error();
  std::vector<Part> parts;
  for (const spec::Spec& spec : *specs) {
    auto calibrator = train::Calibrator::create(spec, ranks);
    if (!calibrator.ok()) return calibrator.error();
    parts.push_back({file_name(spec), *std::move(calibrator)});
  }
  return parts;
}

// `plan` reads all of the directory, so nothing else may be in it.
Result<void> check_directory(const std::string& directory, const std::vector<Part>& parts) {
  if (auto made = make_directory(directory); !made.ok()) return made.error();
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

// Tells of each calibration when it is made.
class AllReport {
 public:
  AllReport(const std::vector<Part>& parts, Output& output) : parts_(parts), output_(output) {
    for (const Part& part : parts) width_ = std::max(width_, static_cast<int>(part.file.size()));
  }

  void begin(std::size_t part) const {
    if (output_.live && !output_.json)
      output_.err << strf("\r%zu of %zu: %s", part + 1, parts_.size(), parts_[part].file.c_str())
                  << "\x1b[K" << std::flush;
  }

  void made(std::size_t part, const cost::Calibration& calibration, Seconds took) {
    if (output_.live && !output_.json) output_.err << "\r\x1b[K" << std::flush;
    files_.push(Json::object({{"file", parts_[part].file},
                              {"seconds", took.value},
                              {"slowdown", calibration.slowdown}}));
    if (output_.json) return;
    if (part == 0) {
      output_.out << counted(calibration.ranks,
                             calibration.ranks_are == "threads" ? "thread" : "process")
                  << " busy, " << calibration.cpu << ", torch " << calibration.torch << "\n\n";
      line("file", "block.F", "block.B", "spread", "took");
    }
    const cost::PassTime& forward = calibration.passes.at("block.F");
    const cost::PassTime& backward = calibration.passes.at("block.B");
    line(parts_[part].file, to_text(forward.time), to_text(backward.time),
         strf("%.1f %%", 100 * std::max(forward.spread, backward.spread)), to_text(took));
  }

  void end(const std::string& directory, Seconds took) {
    if (output_.json)
      return print_json(output_, Json::object({{"schema", "lockstep.calibrate/1"},
                                               {"written", directory},
                                               {"ranks", parts_.front().calibrator.ranks()},
                                               {"seconds", took.value},
                                               {"files", files_}}));
    output_.out << "\nwrote " << counted(static_cast<std::int64_t>(parts_.size()), "file")
                << " into " << directory << " after " << to_text(took)
                << "; plan with --calibration " << directory << '\n';
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

// What is left of the time is dealt out among those left. The largest microbatches come first: where one step of
// each probe is more than their share, the others get less.
ExitCode measure_all(const std::vector<Part>& parts, const std::string& directory, Seconds budget,
                     CalibrateCrew& crew, Output& output) {
  AllReport report(parts, output);
  const RealClock clock;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Seconds begun = clock.now().since_start;
    const double left = std::max(0.0, (budget - begun).value);
    if (crew.leads()) report.begin(i);
    const cost::Calibration made = crew.measure(parts[i].calibrator, parts[i].file,
                                                {left / static_cast<double>(parts.size() - i)});
    if (!crew.leads()) continue;
    const std::string file = (std::filesystem::path(directory) / parts[i].file).string();
    if (auto written = write_text(file, write_calibration(made)); !written.ok())
      return fail(output, written.error());
    report.made(i, made, clock.now().since_start - begun);
  }
  if (crew.leads()) report.end(directory, clock.now().since_start);
  return ExitCode::kOk;
}

}  // namespace

ExitCode calibrate_all(const Args& args, Output& output) {
  config::Report mistakes;
  const auto document = load_run(args, mistakes);
  // A layout is what `plan` will choose, and a cluster would count ranks.
  const auto spec = document ? spec::read_spec(without(*document, {"layout", "cluster"}), mistakes)
                             : std::nullopt;
  if (!spec || !mistakes.ok()) return fail(output, mistakes, subject_of(args));
  const int cores = cores_here();
  const int ranks = args.has("ranks") ? static_cast<int>(args.integer("ranks")) : cores;
  if (ranks > cores)
    return fail(output, Error{Code::kUnsuitableEnvironment,
                              join_parts("--ranks ", ranks, " cannot be busy at once on ",
                                         counted(cores, "core")),
                              join_parts("at most --ranks ", cores)});
  const auto parts = parts_of(*spec, ranks);
  if (!parts.ok()) return fail(output, parts.error());
  const std::string directory = args.has("out") ? args.text("out") : "calibrations";
  if (const auto can = check_directory(directory, *parts); !can.ok())
    return fail(output, can.error());
  if (args.flag("processes") && !is_rank()) return run_as_processes(ranks, output);
  auto crew = CalibrateCrew::join(ranks);
  if (!crew.ok()) return fail(output, crew.error());
  return measure_all(*parts, directory, {args.has("seconds") ? args.real("seconds") : 60}, *crew,
                     output);
}

}  // namespace lockstep::cli
