// What `lockstep generate` was asked for, and the model that it is to be done with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/generate/tokenizer.h"
#include "cli/verb.h"
#include "lockstep/base/dtype.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/hf/export.h"
#include "lockstep/hf/import.h"

namespace lockstep::cli {

// What a terminal may be sent of a text: no control characters but line ends and tabs.
std::string shown(std::string_view text);

struct Prompt {
  std::string text;               // empty where ids were given
  std::vector<std::int64_t> ids;  // of text, once it is encoded
};

// The prompts of --prompt, --prompt-file or --prompt-ids. Refuses options that contradict each
// other, and a file without prompts.
Result<std::vector<Prompt>> read_prompts(const Args& args);

// Weights to be read. The directory is of Hugging Face sources alone.
struct WeightSource {
  std::string path;  // of a run folder, that of its newest checkpoint
  model::Model model;
  DType stored = DType::kF32;  // of weights that are trained
  std::unique_ptr<hf::Directory> directory;
  std::unique_ptr<hf::ParamSource> params;
};
// A run folder, a checkpoint or a Hugging Face directory. Nothing when `report` got an error.
std::optional<WeightSource> open_weights(const std::string& path, config::Report& report);

// That of --tokenizer; else that of a Hugging Face directory, and bytes for a model of as many ids.
// Null where ids were given. Refuses a model whose tokenizer is not known.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const Args& args, const WeightSource& weights);

// Gives every prompt its ids; an empty one those of a text's beginning, or it is refused.
Result<void> encode(std::vector<Prompt>& prompts, Tokenizer& tokenizer);

}  // namespace lockstep::cli
