// A calibration with a number of its own everywhere.
#pragma once

#include "lockstep/cost/measured/calibration.h"
#include "tests/cost/programs.h"

namespace lockstep::cost {

// Times are dyadic, so that sums of them are exact in any order.
inline Calibration some_calibration(std::int64_t members) {
  Calibration made;
  made.date = "2026-01-31";
  made.lockstep = "0.1.0";
  made.torch = "2.13.0";
  made.cpu = "a \"processor\"";
  made.ranks_are = "threads";
  made.ranks = members;
  made.print = fingerprint(tiny().config, {.batch = 1, .seq = 16});
  double next = 0;
  const auto number = [&] { return ++next / 1024; };
  for (const char* unit : {"embed", "block", "head"})
    for (const char* pass : {".F", ".C", ".R", ".B", ".B.first", ".I", ".W", ".W.first"})
      made.passes[std::string(unit) + pass] = {{number()}, number(), 3};
  made.load = {{number()}, 0.25, 4};
  for (Line* line : {&made.count, &made.norm, &made.update, &made.accumulate})
    *line = {number(), number() / (1 << 20), 0.125, 5};
  for (const comm::OpKind kind :
       {comm::OpKind::kAllGather, comm::OpKind::kReduceScatter, comm::OpKind::kAllReduce,
        comm::OpKind::kSend, comm::OpKind::kRecv})
    made.collectives.push_back({kind,
                                members,
                                {number(), number() / (1 << 24), 0.5, 2},
                                {number(), number() / (1 << 24), 0.5, 2},
                                {number(), number() / (1 << 24), 0.5, 2}});
  made.slowdown = 1;
  return made;
}

}  // namespace lockstep::cost
