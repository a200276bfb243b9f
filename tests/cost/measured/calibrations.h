// A calibration with a number of its own everywhere.
#pragma once

#include "lockstep/cost/measured/calibration.h"
#include "lockstep/parts/unit_passes.h"
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

// With times of parts for units of these sizes: each takes 1/1024 of a second, and a collective as
// much once more on its lane.
inline void add_parts(Calibration& into, const model::Model& model, const model::UnitSizes& sizes) {
  using parts::UnitPass;
  for (int unit = 0; unit < model.num_units(); ++unit) {
    const parts::UnitPasses lists(model.config, model.unit(unit), sizes);
    for (const auto& [name, pass] : {std::pair(".F", UnitPass::kForward),
                                     {".C", UnitPass::kCheckpoint},
                                     {".R", UnitPass::kRecompute},
                                     {".B", UnitPass::kBackward},
                                     {".B.first", UnitPass::kFirstBackward},
                                     {".I", UnitPass::kInputGrad},
                                     {".W", UnitPass::kWeightGrad},
                                     {".W.first", UnitPass::kWeightGrad}}) {
      const bool is_head = model.unit(unit).kind == model::UnitKind::kHead;
      const UnitPass own = is_head && pass == UnitPass::kFirstBackward ? UnitPass::kBackward : pass;
      if (!lists.has(own)) continue;
      auto& costs = into.parts[std::string(to_text(model.unit(unit).kind)) + name];
      costs.clear();
      for (const parts::Part& part : lists.at(own).parts)
        if (part.kind != parts::Kind::kWait)
          costs.push_back({{1.0 / 1024}, {row_of(part.kind).collective ? 1.0 / 1024 : 0.0}});
    }
  }
}

}  // namespace lockstep::cost
