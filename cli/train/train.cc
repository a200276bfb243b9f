// lockstep train: its command line. What it does is in torch/train.cc.
#include <utility>
#include <vector>

#include "cli/engine.h"
#include "cli/plan/file.h"
#include "cli/run_file.h"
#include "cli/verbs.h"

namespace lockstep::cli {
namespace {

std::vector<Option> state_options() {
  return {{.name = "save",
           .value = "DIR",
           .help = "Save checkpoints to DIR: at the end, when stopped, and by "
                   "--save-interval",
           .group = "State"},
          {.name = "save-interval",
           .value = "N",
           .type = OptionType::kInt,
           .help = "Save every N steps, too",
           .group = "State",
           .min = 1},
          {.name = "keep",
           .value = "N",
           .type = OptionType::kInt,
           .initial = "2",
           .help = "Checkpoints to keep, the newest ones; 0 for all",
           .group = "State",
           .min = 0},
          {.name = "resume",
           .value = "auto",
           .type = OptionType::kChoice,
           .help = "Go on from the newest checkpoint of --save that is whole; without one, "
                   "refuse, or with =auto begin there",
           .group = "State",
           .choices = {"newest", "auto"},
           .bare = "newest"},
          {.name = "load",
           .value = "PATH",
           .help = "Go on from this checkpoint, or the newest of this directory",
           .group = "State"},
          {.name = "weights",
           .value = "PATH",
           .help = "Begin a new run with the weights of this checkpoint",
           .group = "State"}};
}

std::vector<Option> train_options() {
  std::vector<Option> options = {
      {.name = "mock-data",
       .help = "Train on made-up text that can be learned, not on the files of [data]"},
      plan_option(),
      {.name = "processes", .help = "One process per rank, over gloo"},
      {.name = "every",
       .value = "N",
       .type = OptionType::kInt,
       .initial = "10",
       .help = "Print every Nth step; the first and the last are always printed",
       .min = 1},
      {.name = "metrics",
       .value = "DIR",
       .help = "Write metrics.jsonl and event files for TensorBoard to DIR [default: "
               "that of --save]"},
      {.name = "oracle",
       .help = "Print the bits of every step's loss and gradient norm and a digest of "
               "the state, and nothing else: runs can then be compared with diff"},
      {.name = "trace",
       .value = "OUT",
       .help = "Every op of the last step with its times, below what was predicted, for "
               "Perfetto and chrome://tracing"},
      {.name = "calibration",
       .value = "IN",
       .help = "With --trace: what `lockstep calibrate` measured, to predict with "
               "[default: in proportion to FLOPs]"},
      {.name = "timeline",
       .value = "OUT",
       .help = "The last five steps, op by op, for simulate --against"}};
  for (Option& option : state_options()) options.push_back(std::move(option));
  options.push_back(set_option());
  return options;
}

}  // namespace

Verb train_verb() {
  return {
      .name = "train",
      .summary = "Train a model",
      .description =
          "Ranks are threads of this process, or with --processes one process each. Started by "
          "torchrun or another launcher (RANK is set) it is one rank of that job. Ctrl-C, SIGTERM, "
          "SIGHUP and SIGUSR1 end training after the running step, saved where --save says, with "
          "exit "
          "code 143; a second Ctrl-C or SIGTERM ends it at once. A run goes on from its "
          "checkpoints "
          "in any layout.",
      .examples = {{"lockstep train examples/tiny.toml --mock-data",
                    "a small model on made-up text"},
                   {"lockstep train run.toml --save out --save-interval 100",
                    "on the files of [data], with checkpoints and curves in out/"},
                   {"lockstep train run.toml --save out --resume --set layout.dp=4",
                    "the same run, from its newest checkpoint on, over four threads"},
                   {"lockstep train run.toml --save out --resume=auto",
                    "for a job that is requeued: begins, or goes on"},
                   {"lockstep train run.toml --plan plan.json --save out",
                    "divided as `lockstep plan run.toml --out plan.json` found best"},
                   {"lockstep train run.toml --mock-data --trace run.json",
                    "what was predicted and what was measured, for Perfetto"},
                   {"torchrun --no-python --nproc-per-node 4 lockstep train run.toml",
                    "as a launcher's job"}},
      .options = train_options(),
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .engine = &Engine::train};
}

}  // namespace lockstep::cli
