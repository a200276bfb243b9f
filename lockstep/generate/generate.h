// The loop that makes a text: token after token, until something ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/generate/decoder.h"
#include "lockstep/generate/sampler.h"

namespace lockstep::generate {

enum class Ending : std::uint8_t {
  kMaxTokens,    // as many as were asked for
  kEndToken,     // one that ends a text, which is the last of the tokens
  kStop,         // a stop text
  kInterrupted,  // somebody asked to stop
};
inline constexpr EnumNames<Ending, 4> kEndings = {{"max-tokens", "end", "stop", "interrupted"}};
inline std::string_view to_text(Ending ending) { return kEndings.name_of(ending); }

struct Request {
  std::vector<std::int64_t> prompt = {};  // not empty
  std::int64_t max_tokens = 1;
  std::vector<std::int64_t> ends = {};  // tokens that end a text
  std::int64_t num_ids = 0;             // ids [0, num_ids) may be drawn; 0: the vocabulary
};

struct Generated {
  std::vector<std::int64_t> tokens;
  Ending ending = Ending::kMaxTokens;
  Seconds prompt_time;  // until the logits of the first token
  Seconds time;         // of all tokens behind the first
};

// Hears of every token as it comes; an ending ends the text behind it.
using OnToken = std::function<Result<std::optional<Ending>>(std::int64_t token)>;

// Refuses a prompt without tokens (LS0106) or with ids outside the vocabulary (LS0802), and a
// prompt and max_tokens that together are beyond the model's positions (LS0103).
Result<void> check(const model::ModelConfig& model, const Request& request);

// The same, and refuses logits that are not finite (LS0701). What `on_token` refuses is handed on.
Result<Generated> generate(Decoder& decoder, const Sampler& sampler, const Request& request,
                           const OnToken& on_token = {});

}  // namespace lockstep::generate
