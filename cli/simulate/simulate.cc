// lockstep simulate: times pipeline schedules on a virtual clock, and draws them.
#include <string>
#include <utility>

#include "cli/run_file.h"
#include "cli/simulate/report.h"
#include "cli/simulate/request.h"
#include "cli/simulate/timing.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/draw/svg.h"
#include "lockstep/draw/trace.h"
#include "lockstep/pipeline/csv.h"

namespace lockstep::cli {
namespace {

Result<void> write_files(const SimulateRequest& request, SimulateResult& result) {
  const Timed& timed = result.timed.front();
  const auto write = [&](const std::string& name, const auto& text) -> Result<void> {
    if (name.empty()) return {};
    result.written.push_back(name);
    return write_text(name, text());
  };
  if (auto done = write(request.svg, [&] { return draw::svg(timed.figure); }); !done.ok())
    return done;
  if (auto done = write(request.trace, [&] { return draw::trace(timed.figure); }); !done.ok())
    return done;
  return write(request.csv, [&] { return to_csv(timed.schedule); });
}

ExitCode over_the_cap(const SimulateRequest& request, const Timing& timing, const Timed& timed,
                      Output& output) {
  const auto nearest = timing.fastest_that_fits();
  fail(output,
       Error{Code::kConflict,
             join_parts("schedule `", timed.name, "` holds activations of ",
                        microbatches_text(timed.max_peak()), " on coordinate ", timed.peak_coord(),
                        ", --memory-cap allows ", number_text(*request.memory_cap)),
             nearest ? join_parts("the fastest that fits: --schedule ", nearest->name,
                                  ", which holds ", number_text(nearest->max_peak()), " and takes ",
                                  number_text(nearest->makespan.value))
                     : "no known schedule of this shape holds so little"});
  return ExitCode::kCheckFailed;
}

// One number of chunks seldom suits all that are compared.
Error with_help(Error error, const Args& args) {
  if (args.has("compare") && args.has("chunks"))
    error.help = join_parts("leave --chunks out, and give them one by one, as interleaved:",
                            args.text("chunks"));
  return error;
}

ExitCode run_simulate(const Args& args, Output& output) {
  config::Report report;
  const auto request = read_simulate_request(args, report);
  if (!request) return fail(output, report, subject_of(args));
  const auto timing = Timing::create(*request);
  if (!timing.ok()) return fail(output, timing.error());
  SimulateResult result;
  for (const Entrant& entrant : request->entrants) {
    auto timed = timing->time(entrant);
    if (timed.ok())
      result.timed.push_back(*std::move(timed));
    else if (request->is_all)
      result.refused.push_back({entrant.name, timed.error()});
    else
      report.add(with_help(timed.error(), args));
  }
  if (!report.ok()) return fail(output, report, subject_of(args));
  const bool is_over = !request->compares && request->memory_cap &&
                       result.timed.front().max_peak() > *request->memory_cap;
  if (is_over) return over_the_cap(*request, *timing, result.timed.front(), output);
  if (!request->compares)
    if (const auto written = write_files(*request, result); !written.ok())
      return fail(output, written.error());
  print_simulation(*request, *timing, result, output);
  return ExitCode::kOk;
}

}  // namespace

Verb simulate_verb() {
  return {.name = "simulate",
          .summary = "Time pipeline schedules, compare and draw them",
          .description =
              "Runs one step of a pipeline on a virtual clock and shows who computes what when, "
              "how long the step takes, how much of that is bubble (time in which the busiest "
              "coordinate stands idle) and how many activations are held. Stages are timed whole, "
              "and a tensor arrives a hop after it was made. With --zero, --recompute or a run "
              "file the whole step is timed op by op, with its transfers, gathers and reductions. "
              "Communication takes no time unless told. docs/schedules.md describes the schedules.",
          .examples = {{"lockstep simulate --schedule zbv", "draw a schedule"},
                       {"lockstep simulate --pp 8 --microbatches 32 --compare all --p2p 0.05",
                        "one table of all"},
                       {"lockstep simulate --pp 8 --schedule auto --memory-cap 6",
                        "search for the fastest that holds six microbatches"},
                       {"lockstep simulate --zero 3 --gather 0.5 --reduce 1 --svg step.svg",
                        "a whole step with its collectives, as a picture"},
                       {"lockstep simulate run.toml --schedule interleaved:4 --trace step.json",
                        "a run, for Perfetto"},
                       {"lockstep simulate run.toml --calibration cal.json --against run.timeline",
                        "in seconds, and what a measured run says to that"}},
          .options = simulate_options(),
          .positionals = {{.name = "FILE",
                           .help = "Run file, in TOML or JSON: gives model, layout and batch",
                           .required = false}},
          .run = run_simulate};
}

}  // namespace lockstep::cli
