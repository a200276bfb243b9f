// lockstep audit: its command line. What it does is in torch/run.cc.
#include "cli/engine.h"
#include "cli/verbs.h"

namespace lockstep::cli {

Verb audit_verb() {
  return {.name = "audit",
          .summary = "Say whether another trainer's step is right, and if not why",
          .description =
              "tools/lockstep_audit.py, three lines in a script of PyTorch, writes one step down: "
              "weights, batch, gradients, loss and norm, in pieces as ranks hold them (eager, DDP, "
              "FSDP2, tensor parallelism, pipelines, transformers' Trainer). This computes the "
              "same step on one rank and compares tensor by tensor, within bounds of the dump's "
              "types. Exit 0: the same training. Exit 1: it is not; the first wrong tensor in the "
              "order of the forward pass, which rows, which ranks, and every known fault that "
              "makes exactly these gradients.",
          .examples = {{"lockstep audit dump", "is the step in dump/ right?"},
                       {"lockstep audit dump --json", "for programs"}},
          .options = {choice("dtype", "TYPE", {"f64", "f32"}, "What the reference computes in")
                          .initially("f64"),
                      flag("no-explain", "Compare alone: no gradients of single samples"),
                      flag("verbose", "Every tensor, with its distance and bound").short_name('v')},
          .positionals = {{.name = "DUMP", .help = "Folder that the hook wrote"}},
          .engine = &Engine::audit};
}

}  // namespace lockstep::cli
