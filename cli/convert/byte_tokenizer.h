// The tokenizer of `lockstep data from-text` as files of Hugging Face's `tokenizers`.
#pragma once

#include <vector>

#include "lockstep/hf/export.h"

namespace lockstep::cli {

// tokenizer.json and tokenizer_config.json: every byte a token, and one that ends a text.
std::vector<hf::JsonFile> byte_tokenizer_files();

}  // namespace lockstep::cli
