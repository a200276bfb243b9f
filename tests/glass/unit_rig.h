// All passes of a model's units on a test device, with something to do around every part.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/unit_runner.h"
#include "lockstep/spec/spec.h"

namespace lockstep::nn {

// What the ranks of a world share: units, sequences, or experts.
struct Ways {
  int tp = 1, cp = 1, ep = 1;
  model::CpMethod context = model::CpMethod::kRing;
};

// Gets the number of a part of a pass, which is about to run, or has run.
using AroundPart = std::function<void(const parts::Pass&, std::size_t part, PassRun&)>;

// Runs a pass as UnitRunner does. `behind` comes when what ends with the part has ended.
void run_parts(const UnitRunner& runner, const PassInputs& inputs, parts::UnitPass name,
               at::Tensor given, Kept& kept, const AroundPart& before, const AroundPart& behind);

// The passes of one unit, one behind the other as training has them.
using RunPass = std::function<void(parts::UnitPass, at::Tensor given, Kept&)>;
void run_chains(const UnitRunner& runner, const at::Tensor& rows, const RunPass& run_pass);

// For every unit of a model, on one of the ranks of `world`. `rows` are what units hand on.
using WithUnit = std::function<void(const UnitRunner&, const PassInputs&, const at::Tensor& rows)>;
void for_each_unit(const spec::Spec& spec, const Ways& ways, comm::World& world,
                   const WithUnit& body);

}  // namespace lockstep::nn
