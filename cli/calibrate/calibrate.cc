// lockstep calibrate: its command line. What it does is in torch/run.cc.
#include "cli/engine.h"
#include "cli/run_file.h"
#include "cli/verbs.h"

namespace lockstep::cli {
Verb calibrate_verb() {
  return {
      .name = "calibrate",
      .summary = "Measure how long a run's ops take on this machine",
      .description =
          "Runs steps of the run's own units and its collectives at their own sizes, with all its "
          "ranks busy, or as many as there are cores, and writes what they took. With that file "
          "`simulate` predicts in seconds. It holds for the model's sizes, sequence, microbatch, "
          "type, tp and sp of the run, for any number of layers, schedule, ZeRO stage and "
          "recompute of blocks, and for any pp and dp that divide the ranks it was measured with: "
          "for pp = 2, calibrate with layout.pp=2. With --all there is a file for each microbatch "
          "and tp that layouts of the run can have, by which `plan` chooses one for this machine. "
          "Nothing else should run on the machine meanwhile.",
      .examples = {{"lockstep calibrate run.toml --out cal.json",
                    "measure, in a quarter of a minute"},
                   {"lockstep simulate run.toml --calibration cal.json", "predict with it"},
                   {"lockstep calibrate run.toml --set layout.pp=2 --out cal-pp2.json",
                    "with transfers between two stages"},
                   {"lockstep calibrate run.toml --set layout.tp=2 --out cal-tp2.json",
                    "units that two ranks share"},
                   {"lockstep calibrate run.toml --all --ranks 2 --out cals",
                    "for every layout of two ranks, in a minute"},
                   {"lockstep plan run.toml --calibration cals", "the fastest of them"}},
      .options =
          grouped({{"Options",
                    {flag("all",
                          "A calibration for every microbatch and tp, and OUT a directory of them, "
                          "instead of one for the layout of FILE"),
                     integer("ranks", "N", "With --all: ranks of the layouts [default: the cores]")
                         .between(1, 65536),
                     text("out", "OUT",
                          "What to write [default: calibration.json, with --all calibrations]"),
                     real("seconds", "S",
                          "About how long to measure, altogether [default: 15, with --all 60]")
                         .between(1, 1000),
                     flag("processes", "One process per rank, over gloo")}},
                   {"Over the run file", run_file_options()}}),
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .engine = &Engine::calibrate};
}

}  // namespace lockstep::cli
