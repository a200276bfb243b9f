// Programs written by hand for tests.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/program/inventory.h"
#include "tests/program/dice.h"
#include "tests/program/program_text.h"

namespace lockstep::program {

// A program with these lists in text form, where `wait:gather3` stands for a wait for the last
// `gather3` before it.
inline Program listing(const StepShape& step, const std::vector<std::string>& lists) {
  std::string text = to_text(Program{step, {}, usual_transfers(step)});
  for (std::size_t coord = 0; coord < lists.size(); ++coord) {
    text += std::to_string(coord) + ":";
    std::map<std::string, int> place;
    std::istringstream tokens(lists[coord]);
    int index = 0;
    for (std::string token; tokens >> token; ++index) {
      place[token] = index;
      if (token.starts_with("wait:")) token = "wait@" + std::to_string(place.at(token.substr(5)));
      text += " " + token;
    }
    text += "\n";
  }
  return parse_program(text).value();
}

// Embedding and one block on coordinate 0, one block and the head on coordinate 1; two
// microbatches; each receive stands right before its reader, each send right behind its producer.
inline StepShape two_stages() {
  return {.shape = {.coords = 2, .microbatches = 2}, .stage_begin = {0, 2, 4}};
}
inline Program naive_1f1b() {
  return listing(
      two_stages(),
      {"load0 F0.0 F1.0 send0 load1 F0.1 F1.1 send1 recv2 wait:recv2 B1.0 B0.0 recv3 wait:recv3 "
       "B1.1 B0.1 wait:send0 wait:send1 reduce1.0 reduce0.0 wait:reduce1.0 wait:reduce0.0 norm "
       "update0 update1",
       "load0 count recv0 wait:recv0 F2.0 F3.0 B3.0 B2.0 send2 load1 recv1 wait:recv1 F2.1 F3.1 "
       "B3.1 B2.1 send3 wait:send2 wait:send3 reduce3.0 wait:reduce3.0 reduce2.0 wait:reduce2.0 "
       "norm update2 update3"});
}
inline Program gpipe() {
  return listing(
      two_stages(),
      {"load0 F0.0 F1.0 send0 load1 F0.1 F1.1 send1 recv2 wait:recv2 B1.0 B0.0 recv3 wait:recv3 "
       "B1.1 B0.1 wait:send0 wait:send1 reduce1.0 reduce0.0 wait:reduce1.0 wait:reduce0.0 norm "
       "update0 update1",
       "load0 count recv0 wait:recv0 F2.0 F3.0 load1 recv1 wait:recv1 F2.1 F3.1 B3.0 B2.0 send2 "
       "B3.1 B2.1 send3 wait:send2 wait:send3 reduce3.0 wait:reduce3.0 reduce2.0 wait:reduce2.0 "
       "norm update2 update3"});
}

// One coordinate with embedding, one block and head; ZeRO-3 over replicas, a period per microbatch,
// recompute, split backward, tied.
inline Program zero3() {
  const StepShape step = {.shape = {.microbatches = 2},
                          .stage_begin = {0, 3},
                          .zero = 3,
                          .period = Period::kMicrobatch,
                          .replicas = true,
                          .tied = true,
                          .recompute = {false, true, false}};
  std::string list = "count";
  for (const std::string mb : {"0", "1"}) {
    list += " load" + mb + " gather0 wait:gather0 F0." + mb + " free0 gather1 wait:gather1 F1." +
            mb + " F2." + mb + " gather2 wait:gather2 B2." + mb + " free2 R1." + mb + " I1." + mb +
            " free1 I0." + mb + " W1." + mb + " W0." + mb;
    for (const std::string unit : {"2.", "1.", "0."}) {
      const std::string at = unit + mb;
      list += " reduce" + at + " wait:reduce" + at + " across" + at + " wait:across" + at;
    }
  }
  return listing(step, {list + " tied norm update0 update1 update2"});
}

// One coordinate, two units, one microbatch.
inline Program tiny(int zero) {
  const std::string all_gather =
      zero == 0 ? "" : "allgather0 allgather1 wait:allgather0 wait:allgather1 ";
  return listing({.shape = {}, .stage_begin = {0, 2}, .zero = zero},
                 {all_gather + "load0 count F0.0 F1.0 B1.0 B0.0 reduce1.0 reduce0.0 wait:reduce1.0 "
                               "wait:reduce0.0 norm update0 update1"});
}

}  // namespace lockstep::program
