// lockstep train: its command line. What it does is in torch/run.cc.
#include <vector>

#include "cli/engine.h"
#include "cli/plan/file.h"
#include "cli/run_file.h"
#include "cli/verbs.h"

namespace lockstep::cli {
namespace {

std::vector<Option> train_options() {
  return grouped(
      {{"Options",
        {flag("mock-data", "Train on made-up text that can be learned, not on the files of [data]"),
         text("text", "TEXT",
              "Train on this text file, byte by byte; its tokens are written into the folder of "
              "--save. Without FILE the run is that of examples/text.toml")
             .repeats(),
         plan_option(), flag("processes", "One process per rank, over gloo"),
         flag("dry-run",
              "Say what would run, and the memory and traffic of its ranks; train and write "
              "nothing"),
         integer("every", "N", "Print every Nth step; the first and the last are always printed")
             .initially("10")
             .at_least(1),
         text("metrics", "DIR",
              "Write metrics.jsonl and event files for TensorBoard to DIR [default: that of "
              "--save]"),
         text("sample", "TEXT",
              "Let the model go on from this text, byte by byte, every --sample-interval steps; "
              "samples.jsonl in the folder of the run has the texts"),
         integer("sample-interval", "N", "Steps between two samples [default: train.eval_interval]")
             .at_least(1),
         flag(
             "oracle",
             "Print the bits of every step's loss and gradient norm and a digest of the state, and "
             "nothing else: runs can then be compared with diff"),
         text(
             "trace", "OUT",
             "Every op of the last step with its times, below what was predicted, for Perfetto and "
             "chrome://tracing"),
         text("calibration", "IN",
              "With --trace: what `lockstep calibrate` measured, to predict with [default: in "
              "proportion to FLOPs]"),
         text("timeline", "OUT", "The last five steps, op by op, for simulate --against")}},
       {"State",
        {text("save", "DIR",
              "Save checkpoints to DIR: at the end, when stopped, and by --save-interval"),
         integer("save-interval", "N", "Save every N steps, too").at_least(1),
         integer("keep", "N", "Checkpoints to keep, the newest ones; 0 for all")
             .initially("2")
             .at_least(0),
         choice("resume", "auto", {"newest", "auto"},
                "Go on from the newest checkpoint of --save that is whole; without one, refuse, "
                "or with =auto begin there")
             .when_bare("newest"),
         text("load", "PATH", "Go on from this checkpoint, or the newest of this directory"),
         text("change", "KEYS",
              "With --resume or --load: settings that may be others than the checkpoint's, as "
              "`lr,steps`; from the next step on the new ones hold"),
         text("weights", "PATH", "Begin a new run with the weights of this checkpoint")}},
       {"Over the run file", run_file_options()}});
}

}  // namespace

Verb train_verb() {
  return {
      .name = "train",
      .summary = "Train a model",
      .description =
          "Ranks are threads of this process, or with --processes one process each. Started by "
          "torchrun or another launcher (RANK is set) it is one rank of that job. Ctrl-C, "
          "SIGTERM, SIGHUP and SIGUSR1 end training after the running step, saved where --save "
          "says, with exit code 143; a second Ctrl-C or SIGTERM ends it at once. A run resumes "
          "from its checkpoints in any layout.",
      .examples = {{"lockstep train examples/tiny.toml --mock-data",
                    "a small model on made-up text"},
                   {"lockstep train --text my.txt --save out", "a small model on your own text"},
                   {"lockstep train run.toml --save out --save-interval 100",
                    "on the files of [data], with checkpoints and curves in out/"},
                   {"lockstep train run.toml --save out --resume --set layout.dp=4",
                    "the same run, from its newest checkpoint on, over four threads"},
                   {"lockstep train run.toml --save out --resume --steps 400 --change steps",
                    "the same run, made longer"},
                   {"lockstep train run.toml --save out --resume=auto",
                    "for a job that is requeued: starts, or resumes"},
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
