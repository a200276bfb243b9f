// lockstep calibrate: measures how long the ops of a run take on this machine.
#include <string>
#include <vector>

#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#if LOCKSTEP_WITH_TORCH
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <ostream>
#include <thread>

#include "lockstep/comm/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/plan/legal.h"
#include "lockstep/tensor/engine_check.h"
#include "lockstep/tensor/gloo_world.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/calibrate.h"
#endif

namespace lockstep::cli {
namespace {

#if LOCKSTEP_WITH_TORCH

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

void add_circumstances(const char* ranks_are, cost::Calibration& made) {
  made.date = today();
  made.lockstep = version();
  made.torch = tensor::torch_version();
  made.cpu = processor();
  made.ranks_are = ranks_are;
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

ExitCode calibrate_as_rank(const train::Calibrator& calibrator, const Args& args, Output& output) {
  const auto rendezvous = comm::rendezvous_from(comm::process_environment);
  if (!rendezvous.ok()) return fail(output, rendezvous.error());
  if (rendezvous->world_size != calibrator.ranks())
    return fail(output, Error{Code::kDegreesDoNotMatchWorld,
                              join_parts("the world has ", rendezvous->world_size,
                                         " ranks, this run is calibrated on ", calibrator.ranks()),
                              "start as many, or use --processes"});
  const RealClock clock;
  const auto world = tensor::join_gloo(*rendezvous, Deadline::after(Seconds{60}));
  cost::Calibration made = calibrator.run(*world, Seconds{args.real("seconds")});
  if (rendezvous->rank != Rank{0}) return ExitCode::kOk;
  add_circumstances("processes", made);
  return report(made, args.text("out"), clock.now().since_start, output);
}

ExitCode run_calibrate(const Args& args, Output& output) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  config::Report mistakes;
  const auto document = load_run(args, mistakes);
  const auto spec = document ? plan::read_spec(*document, mistakes) : std::nullopt;
  if (spec)
    for (const Error& error :
         plan::legal(spec->model, spec->layout, spec->batch, spec->train.dtype))
      mistakes.add(error);
  if (!spec || !mistakes.ok()) return fail(output, mistakes, subject_of(args));
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto calibrator = train::Calibrator::create(*spec, cores);
  if (!calibrator.ok()) return fail(output, calibrator.error());
  if (const auto can = check_writable(args.text("out")); !can.ok())
    return fail(output, can.error());
  if (is_rank()) return calibrate_as_rank(*calibrator, args, output);
  if (args.flag("processes")) return run_as_processes(calibrator->ranks(), output);
  const RealClock clock;
  cost::Calibration made;
  comm::run_local(calibrator->ranks(), [&](comm::World& world) {
    cost::Calibration own = calibrator->run(world, Seconds{args.real("seconds")});
    if (world.rank() == Rank{0}) made = std::move(own);
  });
  add_circumstances("threads", made);
  return report(made, args.text("out"), clock.now().since_start, output);
}

#endif

}  // namespace

Verb calibrate_verb() {
  return {
      .name = "calibrate",
      .summary = "Measure how long a run's ops take on this machine",
      .description =
          "Runs steps of the run's own units and its collectives at their own sizes, with all its "
          "ranks busy, or as many as there are cores, and writes what they took. With that file "
          "`simulate` predicts in seconds. It holds for the model's sizes, sequence, microbatch, "
          "type, tp and sp of the run, and for any number of layers, pp, schedule, ZeRO stage and "
          "recompute of blocks. Nothing else should run on the machine meanwhile.",
      .examples = {{"lockstep calibrate run.toml --out cal.json",
                    "measure, in a quarter of a minute"},
                   {"lockstep simulate run.toml --calibration cal.json", "predict with it"},
                   {"lockstep calibrate run.toml --set layout.tp=2 --out cal-tp2.json",
                    "units that two ranks share"}},
      .options = {{.name = "out",
                   .value = "OUT",
                   .initial = "calibration.json",
                   .help = "The file to write"},
                  {.name = "seconds",
                   .value = "S",
                   .type = OptionType::kReal,
                   .initial = "15",
                   .help = "About how long to measure",
                   .min = 1,
                   .max = 50},
                  {.name = "processes", .help = "One process per rank, over gloo"},
                  set_option()},
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .needs_torch = true,
#if LOCKSTEP_WITH_TORCH
      .run = run_calibrate};
#else
      .run = nullptr};
#endif
}

}  // namespace lockstep::cli
