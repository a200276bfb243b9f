// The config.json of a Hugging Face directory, both ways, for gpt2, llama, mistral, qwen2, qwen3,
// olmo2 and gemma2; and read alone, to be priced, for the other families that a model can be of.
//
// Read strictly: whatever would make transformers compute something else than Lockstep trains is
// refused (LS0840), all of it at once. What is only priced need not be trained: traits that change
// no size are notes then. Both ways of writing rotary settings are read, `rope_theta`
// with `rope_scaling` and the newer `rope_parameters`; the first is written, which every version
// reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/model/model_config.h"

namespace lockstep::hf {

struct HfConfig {
  model::ModelConfig model;        // without a name, if none is said
  std::vector<std::string> notes;  // what was left out of account: dropout, keys nobody knows
};

enum class Use : std::uint8_t { kTrain, kPrice };

// `file` names the text in messages. Nothing when `report` got an error.
//
// A mistral without a window becomes a model whose window is as long as its longest sequence: the
// same computation, and still a mistral when it is written.
std::optional<HfConfig> read_config(const Json& json, const std::string& file,
                                    config::Report& report, Use use = Use::kTrain);

// A model to be priced: that of a Hugging Face directory or of a config.json, called like the
// folder; else as model::find_model() finds it.
std::optional<HfConfig> find_model(const std::string& name, config::Report& report);

// Of a model whose weights are stored in `stored`. Refuses (LS0842) a model that would not be read
// back as it is, and names its traits that no class of transformers has.
Result<Json> config_json(const model::ModelConfig& model, DType stored);

}  // namespace lockstep::hf
