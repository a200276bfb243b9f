// Logits do not depend on how a text is cut into calls; what they are, tests/oracles asks
// transformers.
#include "lockstep/generate/decoder.h"

#include <gtest/gtest.h>

#include "tests/generate/tiny.h"

namespace lockstep::generate {
namespace {

std::vector<model::ModelConfig> all_kinds() {
  std::vector<model::ModelConfig> all;
  for (const auto family :
       {model::Family::kGpt2, model::Family::kLlama, model::Family::kMoe, model::Family::kGemma2})
    all.push_back(tiny(family));
  all.back().window = 7;
  all.back().attention_softcap = 1.5;
  model::ModelConfig windowed = tiny(model::Family::kLlama);
  windowed.window = 7;
  all.push_back(windowed);
  model::ModelConfig wide = tiny(model::Family::kLlama);
  wide.qk_norm = model::QkNorm::kWide;
  wide.norm_place = model::NormPlace::kAfter;
  wide.tied = true;
  all.push_back(wide);
  return all;
}

// The logits behind tokens that come `piece` at a time.
std::vector<float> logits_of(Decoder& decoder, std::span<const std::int64_t> tokens,
                             std::size_t piece) {
  decoder.begin(std::ssize(tokens));
  std::span<const float> logits;
  for (std::size_t at = 0; at < tokens.size(); at += piece)
    logits = decoder.extend(tokens.subspan(at, std::min(piece, tokens.size() - at)));
  return {logits.begin(), logits.end()};
}

TEST(Decoder, ComputesTheSameHoweverATextIsCut) {
  const std::vector<std::int64_t> tokens = some_tokens(40);
  for (const model::ModelConfig& config : all_kinds()) {
    SCOPED_TRACE(join_parts(to_text(config.family), " window ", config.window));
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      const auto decoder = decoder_of(config, dtype);
      const std::vector<float> whole = logits_of(*decoder, tokens, tokens.size());
      // Logits are f32 whatever the decoder computes in; bf16 has 8 bits.
      const double bound = dtype == DType::kBF16 ? 0.2 : dtype == DType::kF32 ? 2e-5 : 1e-6;
      for (const std::size_t piece : {1U, 7U, 39U}) {
        const std::vector<float> cut = logits_of(*decoder, tokens, piece);
        ASSERT_EQ(cut.size(), 61U);
        for (std::size_t i = 0; i < cut.size(); ++i)
          ASSERT_NEAR(cut[i], whole[i], bound) << to_text(dtype) << " by " << piece;
      }
    }
  }
}

TEST(Decoder, ForgetsTheTextBefore) {
  const auto decoder = decoder_of(tiny(model::Family::kLlama), DType::kF32);
  const std::vector<std::int64_t> tokens = some_tokens(20);
  const auto first = logits_of(*decoder, tokens, 20);
  logits_of(*decoder, some_tokens(33), 5);
  EXPECT_EQ(logits_of(*decoder, tokens, 20), first);
}

TEST(Decoder, TellsWhatEveryUnitGives) {
  const std::vector<std::int64_t> tokens = some_tokens(20);
  for (const model::ModelConfig& config : all_kinds()) {
    const auto decoder = decoder_of(config, DType::kF64);
    const std::vector<at::Tensor> outputs = decoder->outputs(tokens);
    ASSERT_EQ(std::ssize(outputs), config.layers + 2);
    for (std::size_t unit = 0; unit + 1 < outputs.size(); ++unit) {
      EXPECT_EQ(outputs[unit].sizes(), (std::vector<std::int64_t>{20, config.hidden}));
      EXPECT_FALSE(outputs[unit].equal(outputs[unit + 1]));
    }
    for (const std::int64_t size : {1, 13, 20}) {
      const std::vector<float> logits = logits_of(*decoder, std::span(tokens).first(size), 20);
      const double* const row = outputs.back().const_data_ptr<double>() + (size - 1) * 61;
      for (std::size_t i = 0; i < 61; ++i) ASSERT_NEAR(row[i], logits[i], 1e-6) << size;
    }
  }
}

TEST(Decoder, SeesEveryTokenOfThePrompt) {
  const auto decoder = decoder_of(tiny(model::Family::kLlama), DType::kF32);
  std::vector<std::int64_t> tokens = some_tokens(20);
  const auto first = logits_of(*decoder, tokens, 20);
  tokens[0] += 1;
  EXPECT_NE(logits_of(*decoder, tokens, 20), first);
}

}  // namespace
}  // namespace lockstep::generate
