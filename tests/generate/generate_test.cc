#include "lockstep/generate/generate.h"

#include <gtest/gtest.h>

#include "tests/generate/tiny.h"

namespace lockstep::generate {
namespace {

Error refusal(const Request& request, bool spoilt = false) {
  DrawnParams params;
  params.spoilt = spoilt;
  const auto model = *model::describe(tiny(model::Family::kLlama));
  const auto decoder = Decoder::load(model, params, DType::kF32).value();
  return generate(*decoder, Sampler({}, "test"), request).error();
}

TEST(Generate, RefusesWhatTheModelCannotDo) {
  EXPECT_EQ(refusal({.prompt = {}}).code, Code::kConflict);
  EXPECT_EQ(refusal({.prompt = {1, 61}}).message,
            "token 1 of the prompt is 61; the vocabulary has 61");
  EXPECT_EQ(refusal({.prompt = {-1}}).code, Code::kTokenBeyondVocab);
  EXPECT_EQ(refusal({.prompt = some_tokens(64)}).message,
            "the prompt has 64 tokens and the model 64 positions");
  EXPECT_EQ(refusal({.prompt = some_tokens(60), .max_tokens = 5}).help, "at most 4");
  EXPECT_EQ(refusal({.prompt = {1}}, /*spoilt=*/true).code, Code::kDiverged);
}

TEST(Generate, FillsThePositionsAndEndsWhereItIsTold) {
  const auto decoder = decoder_of(tiny(model::Family::kLlama), DType::kF32);
  const Sampler sampler({}, "test");
  const Generated all = *generate(*decoder, sampler, {.prompt = {1, 2}, .max_tokens = 62});
  EXPECT_EQ(all.tokens.size(), 62U);
  EXPECT_EQ(all.ending, Ending::kMaxTokens);
  const Generated ended =
      *generate(*decoder, sampler, {.prompt = {1, 2}, .max_tokens = 62, .ends = {all.tokens[30]}});
  EXPECT_EQ(ended.ending, Ending::kEndToken);
  EXPECT_EQ(ended.tokens.back(), all.tokens[30]);
  EXPECT_LE(ended.tokens.size(), 31U);
  const Generated few =
      *generate(*decoder, sampler, {.prompt = {1, 2}, .max_tokens = 62, .num_ids = 3});
  for (const std::int64_t token : few.tokens) EXPECT_LT(token, 3);
  std::size_t heard = 0;
  const Generated stopped =
      *generate(*decoder, sampler, {.prompt = {1, 2}, .max_tokens = 62},
                [&](std::int64_t) -> Result<std::optional<Ending>> {
                  return ++heard == 5 ? std::optional(Ending::kInterrupted) : std::nullopt;
                });
  EXPECT_EQ(stopped.ending, Ending::kInterrupted);
  EXPECT_EQ(stopped.tokens, std::vector(all.tokens.begin(), all.tokens.begin() + 5));
}

}  // namespace
}  // namespace lockstep::generate
