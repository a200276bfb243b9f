// lockstep verify: its command line. What it does is in torch/verify.cc.
#include <utility>
#include <vector>

#include "cli/engine.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "cli/verify/request.h"

namespace lockstep::cli {
namespace {

std::vector<Option> options() {
  std::vector<Option> list = verify_request_options();
  for (Option& option :
       grouped({{"How",
                 {flag("processes",
                       "One process per rank, over gloo; layouts of exactly --ranks ranks"),
                  flag("verbose", "Print a line for every layout"),
                  flag("markdown", "Print a table of verdicts"), set_option()}}}))
    list.push_back(std::move(option));
  return list;
}

}  // namespace

Verb verify_verb() {
  return {
      .name = "verify",
      .summary = "Prove that layouts train what one device would",
      .description =
          "Trains a few steps on one rank and again under every layout, and compares loss, "
          "gradient norm, every gradient, moment and parameter. Layouts of equal tensor and data "
          "degree, microbatch size and reduction must agree to the bit; bytes sent and tensor "
          "memory must be what was predicted. Exit code 1 when a layout fails; its first differing "
          "tensor is named. Needs no arguments; without FILE and --model it verifies on a built-in "
          "small llama.",
      .examples = {{"lockstep verify", "a built-in model, on up to four threads"},
                   {"lockstep verify --layouts all --ranks 8", "every layout of up to eight ranks"},
                   {"lockstep verify run.toml --shrink",
                    "the layout of a run file, on a small model of its kind"},
                   {"lockstep verify --layouts \"pp2 dp2 zero3\" --processes",
                    "one layout, over processes"}},
      .options = options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, batch and optimizer",
                       .required = false}},
      .engine = &Engine::verify};
}

}  // namespace lockstep::cli
