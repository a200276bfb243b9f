// A layout as a launch script of another framework: the model's arguments, the layout, and how to
// start it. What only the user knows (data, tokenizer, learning rate, addresses) is an environment
// variable that the script asks for. Pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/model/model_config.h"
#include "lockstep/planner/framework.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

// What is to be run. REQUIRES, wherever one is taken: a layout without contradictions for this
// model and batch, of which the framework lacks nothing.
struct Job {
  const model::ModelConfig& model;
  spec::Layout layout;
  spec::Batch batch;
  bool fp8 = false;  // products of 8 bits, where the framework has them
  std::int64_t gpus_per_node = 8;
};

struct Script {
  std::string text = {};
  std::vector<std::string> notes = {};  // what has to be done elsewhere: sentences, no full stop
};

// Refuses models that the framework has no words for.
Result<Script> emit(const Framework& framework, const Job& job);

}  // namespace lockstep::planner
