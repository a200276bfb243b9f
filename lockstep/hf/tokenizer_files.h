// What a Hugging Face directory has besides its model: a tokenizer, and how to generate.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::hf {

struct TokenizerFiles {
  std::vector<std::string> paths;
  Json special = Json::object();  // keys of its config.json that name tokens: bos_token_id, ...
};

// LS0004 when the folder has none of the files that transformers' tokenizers write.
Result<TokenizerFiles> tokenizer_files(const std::string& folder);

}  // namespace lockstep::hf
