// Text as tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::cli {

// One thread at a time; one text at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual Result<std::vector<std::int64_t>> encode(const std::string& text) = 0;

  // A text begins with these tokens, which next() goes on from.
  virtual Result<void> begin(std::span<const std::int64_t> prompt) = 0;
  // The bytes by which the text grows, which may be none until more tokens come; at its end the
  // rest.
  virtual Result<std::string> next(std::int64_t token) = 0;
  virtual Result<std::string> finish() = 0;

  std::string name;                   // "bytes", or a file
  std::vector<std::int64_t> ends;     // tokens that end a text
  std::optional<std::int64_t> empty;  // what an empty prompt stands for
  std::int64_t num_ids = 0;           // ids beyond are no text; 0: that is not told
};

// Those of `lockstep data from-text`; an end of a document begins a text.
std::unique_ptr<Tokenizer> byte_tokenizer();

// A tokenizer.json of Hugging Face, in a process of Python's `tokenizers`; special tokens of the
// generation_config.json or config.json beside it. LS0004 where there is no such file, LS0602 where
// Python or its package is missing or cannot read it.
Result<std::unique_ptr<Tokenizer>> hf_tokenizer(const std::string& file);

}  // namespace lockstep::cli
