#include "cli/train/torch/wishes.h"

#include <filesystem>
#include <utility>

#include "cli/help.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/train/run_metrics.h"

namespace lockstep::cli {
namespace {

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
    Result<CalibrationFile> read = read_calibration_for(args.text("calibration"), spec);
    if (!read.ok()) return read.error();
    files.calibration = *std::move(read);
  }
  for (const std::string& file : {files.trace, files.timeline})
    if (const auto can = file.empty() ? Result<void>{} : check_writable(file); !can.ok())
      return can.error();
  return files;
}

Error conflict(const char* option, const char* why, const char* help) {
  return {Code::kConflict, join_parts("--", option, ", but ", why), help};
}

Result<void> read_start(const Args& args, TrainWishes& wishes) {
  const bool loads = args.has("load"), weights = args.has("weights");
  const bool resumes = args.has("resume");
  if (resumes && (loads || weights))
    return conflict("resume", loads ? "there is --load too" : "there is --weights too",
                    "--resume goes on from the newest checkpoint of --save; --load and --weights "
                    "name another start");
  if (loads && weights)
    return conflict("load", "there is --weights too",
                    "--load goes on with a run; --weights begins one with its weights alone");
  if (resumes)
    wishes.start =
        args.text("resume") == "auto" ? train::Start::kResumeOrNew : train::Start::kResume;
  else if (loads || weights)
    wishes.start = loads ? train::Start::kContinue : train::Start::kWeights;
  wishes.from = named(args, loads ? "load" : "weights");
  return {};
}

}  // namespace

Result<TrainWishes> read_wishes(const Args& args, const spec::Spec& spec) {
  TrainWishes wishes;
  wishes.every = args.integer("every");
  wishes.oracle = args.flag("oracle");
  Result<RunFiles> files = read_files(args, spec);
  if (!files.ok()) return files.error();
  wishes.files = *std::move(files);
  wishes.digests = wishes.oracle;
  wishes.timelines = wishes.files.any() ? kStepsKept : 0;
  wishes.version = version();
  wishes.save = named(args, "save");
  wishes.metrics = args.has("metrics") ? args.text("metrics") : wishes.save;
  wishes.keep = args.integer("keep");
  if (args.has("save-interval")) wishes.save_interval = args.integer("save-interval");
  if (wishes.save.empty())
    for (const char* option : {"save-interval", "resume"})
      if (args.has(option)) return conflict(option, "there is no --save", "add --save DIR");
  if (const Result<void> one = read_start(args, wishes); !one.ok()) return one.error();
  return wishes;
}

namespace {

// Refuses a directory that cannot be made, and one that has metrics unless it may.
Result<void> check_metrics(const std::string& directory, bool may_exist) {
  if (const auto made = make_directory(directory); !made.ok()) return made.error();
  const std::string path = train::metrics_path(directory);
  if (!std::filesystem::exists(path)) return {};
  if (may_exist) return check_writable(path);
  return Error{Code::kBadMetrics, join_parts("`", path, "` is there already"),
               "it tells of an earlier run: resume that one, or name another directory"};
}

}  // namespace

Result<void> check_places(const TrainWishes& wishes) {
  if (!wishes.save.empty()) {
    const auto there = checkpoint::candidates(files::real_disk(), wishes.save);
    if (wishes.start == train::Start::kResume && there.empty())
      return Error{Code::kNoCheckpoint,
                   join_parts("`", wishes.save, "` has no checkpoint to resume from"),
                   "--resume=auto begins a run there"};
    if (!wishes.resumes() && !there.empty())
      return Error{Code::kConflict,
                   join_parts("`", wishes.save, "` has checkpoints of an earlier run, the newest ",
                              std::filesystem::path(there.front()).filename().string()),
                   "--resume goes on with that run; another --save begins a new one"};
  }
  if (wishes.metrics.empty()) return {};
  return check_metrics(wishes.metrics, wishes.resumes() || wishes.metrics == wishes.save);
}

}  // namespace lockstep::cli
