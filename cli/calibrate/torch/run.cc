// lockstep calibrate: measures how long the ops of a run take on this machine.
#include <ostream>
#include <string>
#include <vector>

#include "cli/calibrate/torch/all.h"
#include "cli/calibrate/torch/crew.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/torch/engine.h"
#include "lockstep/base/clock.h"
#include "lockstep/spec/legal.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/calibrate.h"

namespace lockstep::cli {
namespace {

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

ExitCode report(const cost::Calibration& made, const std::string& file, Seconds took,
                Output& output) {
  if (auto written = write_text(file, write_calibration(made)); !written.ok())
    return fail(output, written.error());
  if (output.json) {
    print_json(output, Json::object({{"schema", "lockstep.calibrate/1"},
                                     {"written", file},
                                     {"ranks", made.ranks},
                                     {"seconds", took.value},
                                     {"slowdown", made.slowdown}}));
    return ExitCode::kOk;
  }
  output.out << counted(made.ranks, made.ranks_are == "threads" ? "thread" : "process") << " busy, "
             << made.cpu << ", torch " << made.torch << "\n\n";
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

ExitCode run_calibrate(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  if (args.flag("all")) return calibrate_all(args, output);
  if (args.has("ranks"))
    return fail(output, Error{Code::kConflict,
                              "--ranks is for --all; without it a run has the ranks of its layout",
                              "add --all, or set them: --set layout.dp=2"});
  config::Report mistakes;
  const auto document = load_run(args, mistakes);
  const auto spec = document ? spec::read_spec(*document, mistakes) : std::nullopt;
  if (spec)
    for (const Error& error :
         spec::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      mistakes.add(error);
  if (!spec || !mistakes.ok()) return fail(output, mistakes, subject_of(args));
  const auto calibrator = train::Calibrator::create(*spec, cores_here());
  if (!calibrator.ok()) return fail(output, calibrator.error());
  const std::string file = args.has("out") ? args.text("out") : "calibration.json";
  if (const auto can = check_writable(file); !can.ok()) return fail(output, can.error());
  if (args.flag("processes") && !is_rank()) return run_as_processes(calibrator->ranks(), output);
  const RealClock clock;
  auto crew = CalibrateCrew::join(calibrator->ranks());
  if (!crew.ok()) return fail(output, crew.error());
  const cost::Calibration made =
      crew->measure(*calibrator, "", {args.has("seconds") ? args.real("seconds") : 15});
  return crew->leads() ? report(made, file, clock.now().since_start, output) : ExitCode::kOk;
}

}  // namespace lockstep::cli
