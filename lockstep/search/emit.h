// A layout in the words of other frameworks: Megatron-LM's flags, torchtitan's configuration, DeepSpeed's.
// What a framework can not express is named, and the nearest that it can is written instead; `layout` is what
// the text says. Flags of the model itself are left out. Pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/arch/model_config.h"
#include "lockstep/plan/layout.h"

namespace lockstep::search {

struct Emitted {
  std::string text = {};
  plan::Layout layout = {};  // what `text` describes: the one asked for unless something is missing
  std::vector<std::string> missing = {};  // one sentence each, no full stop
  std::vector<std::string> notes = {};    // what has to be done elsewhere; the same form
};

// What is to be run. REQUIRES, wherever one is taken: a layout without contradictions for this model and batch.
struct Job {
  const arch::ModelConfig& model;
  plan::Layout layout;
  plan::Batch batch;
};

Emitted emit_megatron(const Job& job);
Emitted emit_torchtitan(const Job& job);
Emitted emit_deepspeed(const Job& job);

struct Framework {
  std::string_view name;
  Emitted (*emit)(const Job& job);
};
std::span<const Framework> frameworks();

}  // namespace lockstep::search
