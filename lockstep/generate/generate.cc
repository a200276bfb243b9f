#include "lockstep/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"

namespace lockstep::generate {

Result<void> check(const model::ModelConfig& model, const Request& request) {
  if (request.prompt.empty())
    return Error{Code::kConflict, "the prompt has no tokens", "a text begins with one at least"};
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    if (const std::int64_t id = request.prompt[i]; id < 0 || id >= model.vocab)
      return Error{
          Code::kTokenBeyondVocab,
          join_parts("token ", i, " of the prompt is ", id, "; the vocabulary has ", model.vocab),
          join_parts("ids go from 0 to ", model.vocab - 1,
                     "; is it the tokenizer of another model?")};
  const std::int64_t size = std::ssize(request.prompt), room = model.max_positions - size;
  if (room < 1)
    return Error{
        Code::kOutOfRange,
        join_parts("the prompt has ", with_commas(size), " tokens and the model ",
                   with_commas(model.max_positions), " positions"),
        join_parts("at most ", with_commas(model.max_positions - 1), " leave room for an answer")};
  if (request.max_tokens > room)
    return Error{
        Code::kOutOfRange,
        join_parts("max-tokens is ", with_commas(request.max_tokens), ", and behind a prompt of ",
                   counted(size, "token"), " the model has ", with_commas(room), " positions"),
        join_parts("at most ", room)};
  return {};
}

Result<Generated> generate(Decoder& decoder, const Sampler& sampler, const Request& request,
                           const OnToken& on_token) {
  const model::ModelConfig& model = decoder.model().config;
  LS_TRY(check(model, request));
  LS_CHECK(request.max_tokens > 0 && request.num_ids <= model.vocab);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto since = [&](SteadyPoint begin) {
    return Seconds{std::chrono::duration<double>(now() - begin).count()};
  };
  Generated made;
  const SteadyPoint begun = now();
  decoder.begin(std::ssize(request.prompt) + request.max_tokens);
  std::span<const float> logits = decoder.extend(request.prompt);
  made.prompt_time = since(begun);
  const SteadyPoint first = now();
  for (;;) {
    if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
      return Error{Code::kDiverged,
                   join_parts("logits behind ", decoder.size(), " tokens are not finite"),
                   "take a checkpoint from before the training diverged, or a wider --dtype"};
    if (request.num_ids > 0) logits = logits.first(static_cast<std::size_t>(request.num_ids));
    const std::int64_t token = sampler.draw(logits, made.tokens.size());
    made.tokens.push_back(token);
    std::optional<Ending> ending;
    if (on_token) ending = LS_TRY(on_token(token));
    if (std::ranges::count(request.ends, token) > 0) ending = Ending::kEndToken;
    if (!ending && std::ssize(made.tokens) == request.max_tokens) ending = Ending::kMaxTokens;
    made.time = since(first);
    if (ending) return made.ending = *ending, made;
    logits = decoder.extend({&token, 1});
  }
}

}  // namespace lockstep::generate
