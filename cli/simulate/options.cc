#include <utility>

#include "cli/run_file.h"
#include "cli/simulate/request.h"

namespace lockstep::cli {
namespace {

Option in_group(const char* group, Option option) {
  option.group = group;
  return option;
}

Option count(const char* name, const char* help, double min = 1, double max = kMostCount) {
  return {
      .name = name, .value = "N", .type = OptionType::kInt, .help = help, .min = min, .max = max};
}

Option time(const char* name, const char* help) {
  return {.name = name,
          .value = "TIME",
          .type = OptionType::kReal,
          .help = help,
          .min = 0,
          .max = kMostTime};
}

std::vector<Option> schedules() {
  return {
      {.name = "schedule",
       .value = "NAME",
       .help = "A schedule of docs/schedules.md, `auto` to search for the fastest under "
               "--memory-cap, or a file.csv in PyTorch's form. NAME:N is NAME with N chunks "
               "[default: that of FILE, else 1f1b]"},
      {.name = "compare",
       .value = "NAMES",
       .help = "One table of several, as 1f1b,interleaved:4,zbv; `all` for every schedule that "
               "takes the shape"},
      count("pp", "Pipeline coordinates [default: 4]"),
      count("chunks",
            "Stages per coordinate [default: what the schedule needs; 2 when it takes any]"),
      count("microbatches", "Microbatches of a step [default: 2 x pp]"),
      count("group", "Microbatches that go through a chunk together [default: pp]"),
      {.name = "memory-cap",
       .value = "N",
       .type = OptionType::kReal,
       .help = "Most activations a coordinate may hold, in those of one microbatch; exit code 1 "
               "when the schedule holds more [default: none; for `auto`, what 1f1b holds]",
       .min = 1,
       .max = kMostCount},
      {.name = "refill", .help = "Move weight gradients to where a coordinate would stand idle"}};
}

std::vector<Option> whole_step() {
  return {count("zero", "Shard over the data axis as ZeRO stage N does, 0 to 3", 0, 3),
          {.name = "recompute", .help = "Blocks repeat F before their backward pass"},
          count("layers", "Blocks per stage [default: 1]"),
          set_option()};
}

std::vector<Option> times() {
  return {{.name = "costs",
           .value = "F,I,W",
           .help = "Of one microbatch on a whole coordinate: forward pass, gradient of the input, "
                   "gradients of the weights [default: 1,1,1; with FILE in proportion to its "
                   "FLOPs]"},
          time("p2p", "One tensor to the next coordinate [default: 0]"),
          time("gather", "With ZeRO 1 to 3: all parameters of a coordinate [default: 0]"),
          time("reduce", "With --zero or FILE: all gradients of a coordinate [default: 0]")};
}

std::vector<Option> measured_times() {
  return {{.name = "calibration",
           .value = "IN",
           .help = "With FILE: what `lockstep calibrate` measured; times are then in seconds"},
          {.name = "against",
           .value = "IN",
           .help = "With --calibration: what `lockstep train --timeline` measured; shows what was "
                   "predicted beside it, and where they differ"}};
}

std::vector<Option> files() {
  return {{.name = "svg", .value = "OUT", .help = "The drawing, for browsers and papers"},
          {.name = "trace",
           .value = "OUT",
           .help = "Every op with its times, for Perfetto and chrome://tracing"},
          {.name = "csv",
           .value = "OUT",
           .help = "The order of compute, as PyTorch's pipelining reads it"}};
}

}  // namespace

std::vector<Option> simulate_options() {
  std::vector<Option> all;
  for (const auto& [group, options] : {std::pair{"Schedules", schedules()},
                                       {"The whole step, op by op", whole_step()},
                                       {"Times, in any unit", times()},
                                       {"Times, in seconds", measured_times()},
                                       {"Files to write", files()}})
    for (const Option& option : options) all.push_back(in_group(group, option));
  return all;
}

}  // namespace lockstep::cli
