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

Option count(const char* name, const char* help, double min = 1, double max = kMostCount) {
  return integer(name, "N", help).between(min, max);
}

Option time(const char* name, const char* help) {
  return real(name, "TIME", help).between(0, kMostTime);
}

std::vector<Option> schedules() {
  return {text("schedule", "NAME",
               "A schedule of docs/schedules.md, `auto` to search for the fastest under "
               "--memory-cap, or a file.csv in PyTorch's form. NAME:N is NAME with N chunks "
               "[default: that of FILE, else 1f1b]"),
          text("compare", "NAMES",
               "One table of several, as 1f1b,interleaved:4,zbv; `all` for every schedule that "
               "takes the shape"),
          count("pp", "Pipeline coordinates [default: 4]"),
          count("chunks",
                "Stages per coordinate [default: what the schedule needs; 2 when it takes any]"),
          count("microbatches", "Microbatches of a step [default: 2 x pp]"),
          count("group", "Microbatches that go through a chunk together [default: pp]"),
          real("memory-cap", "N",
               "Most activations a coordinate may hold, in those of one microbatch; exit code 1 "
               "when the schedule holds more [default: none; for `auto`, what 1f1b holds]")
              .between(1, kMostCount),
          flag("refill", "Move weight gradients to where a coordinate would stand idle")};
}

std::vector<Option> whole_step() {
  return {count("zero", "Shard over the data axis as ZeRO stage N does, 0 to 3", 0, 3),
          flag("recompute", "Blocks repeat F before their backward pass"),
          count("layers", "Blocks per stage [default: 1]"), set_option()};
}

std::vector<Option> times() {
  return {text("costs", "F,I,W",
               "Of one microbatch on a whole coordinate: forward pass, gradient of the input, "
               "gradients of the weights [default: 1,1,1; with FILE in proportion to its FLOPs]"),
          time("p2p", "One tensor to the next coordinate [default: 0]"),
          time("gather", "With ZeRO 1 to 3: all parameters of a coordinate [default: 0]"),
          time("reduce", "With --zero or FILE: all gradients of a coordinate [default: 0]")};
}

std::vector<Option> measured_times() {
  return {text("calibration", "IN",
               "With FILE: what `lockstep calibrate` measured; times are then in seconds"),
          text("against", "IN",
               "With --calibration: what `lockstep train --timeline` measured; shows what was "
               "predicted beside it, and where they differ")};
}

std::vector<Option> files() {
  return {text("svg", "OUT", "The drawing, for browsers and papers"),
          text("trace", "OUT", "Every op with its times, for Perfetto and chrome://tracing"),
          text("csv", "OUT", "The order of compute, as PyTorch's pipelining reads it")};
}

std::vector<Option> simulate_options() {
  return grouped({{"Schedules", schedules()},
                  {"The whole step, op by op", whole_step()},
                  {"Times, in any unit", times()},
                  {"Times, in seconds", measured_times()},
                  {"Files to write", files()}});
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
