#include "cli/train_wishes.h"

#if LOCKSTEP_WITH_TORCH
#include <utility>

#include "cli/text_file.h"
#include "lockstep/base/check.h"

namespace lockstep::cli {
namespace {

std::string named(const Args& args, const char* option) {
  return args.has(option) ? args.text(option) : std::string();
}

Result<RunFiles> read_files(const Args& args, const plan::Spec& spec) {
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

}  // namespace

Result<TrainWishes> read_wishes(const Args& args, const plan::Spec& spec) {
  TrainWishes wishes;
  wishes.every = args.integer("every");
  wishes.oracle = args.flag("oracle");
  Result<RunFiles> files = read_files(args, spec);
  if (!files.ok()) return files.error();
  wishes.files = *std::move(files);
  wishes.metrics = named(args, "metrics");
  return wishes;
}

}  // namespace lockstep::cli
#endif
