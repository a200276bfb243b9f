// A layout in the words of other frameworks: Megatron-LM's flags, torchtitan's configuration,
// DeepSpeed's. What a framework cannot express is named, and the nearest that it can is written
// instead; `layout` is what the text says. Flags of the model itself are left out. Pure functions;
// any thread may call them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/model_config.h"
#include "lockstep/spec/layout.h"

namespace lockstep::planner {

struct Emitted {
  std::string text = {};
  spec::Layout layout = {};  // what `text` describes: the one asked for unless something is missing
  std::vector<std::string> missing = {};  // one sentence each, no full stop
  std::vector<std::string> notes = {};    // what has to be done elsewhere; the same form
};

// What is to be run. REQUIRES, wherever one is taken: a layout without contradictions for this
// model and batch.
struct Job {
  const model::ModelConfig& model;
  spec::Layout layout;
  spec::Batch batch;
  bool fp8 = false;  // products of 8 bits; only for a framework that has them
};

Emitted emit_megatron(const Job& job);
Emitted emit_torchtitan(const Job& job);
Emitted emit_deepspeed(const Job& job);

struct Framework {
  std::string_view name;
  Emitted (*emit)(const Job& job);
  bool has_fp8 = false;  // its configuration can say so
};
std::span<const Framework> frameworks();

}  // namespace lockstep::planner
