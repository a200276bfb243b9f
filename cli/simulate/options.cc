#include "cli/run_file.h"
#include "cli/simulate/request.h"

namespace lockstep::cli {
namespace {

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

}  // namespace

std::vector<Option> simulate_options() {
  return grouped({{"Schedules", schedules()},
                  {"The whole step, op by op", whole_step()},
                  {"Times, in any unit", times()},
                  {"Times, in seconds", measured_times()},
                  {"Files to write", files()}});
}

}  // namespace lockstep::cli
