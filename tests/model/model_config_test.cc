#include "lockstep/model/model_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/user_model.h"

namespace lockstep::model {
namespace {

struct Breakage {
  const char* row;
  std::function<void(ModelConfig&)> change;
  std::vector<std::string> named;  // must all appear in one message
};

const std::vector<Breakage>& breakages() {
  static const std::vector<Breakage> all = {
      {"llama3-8b", [](ModelConfig& c) { c.kv_heads = 5; }, {"heads", "32", "kv_heads", "5"}},
      {"llama3-8b", [](ModelConfig& c) { c.layers = 0; }, {"layers", "0"}},
      {"llama3-8b", [](ModelConfig& c) { c.hidden = -4; }, {"hidden", "-4"}},
      {"llama3-8b", [](ModelConfig& c) { c.ffn = 0; }, {"ffn", "0"}},
      {"llama3-8b", [](ModelConfig& c) { c.head_dim = 127; }, {"head_dim", "127"}},
      {"llama3-8b", [](ModelConfig& c) { c.moe.experts = 8; }, {"moe.experts", "8", "llama"}},
      {"llama3-8b", [](ModelConfig& c) { c.mla.kv_rank = 512; }, {"mla.kv_rank", "512", "llama"}},
      {"llama3-8b", [](ModelConfig& c) { c.mtp_layers = 1; }, {"mtp_layers", "1"}},
      {"llama3-8b", [](ModelConfig& c) { c.vocab = std::int64_t{1} << 40; }, {"vocab"}},
      {"llama3-8b", [](ModelConfig& c) { c.window_every = 2; }, {"window_every", "2", "llama"}},
      {"llama3-8b", [](ModelConfig& c) { c.linear_bias = true; }, {"linear_bias", "llama"}},
      {"gpt2-small", [](ModelConfig& c) { c.dropout = 0.1; }, {"dropout is 0.1"}},
      {"llama3-8b",
       [](ModelConfig& c) { c.norm_place = NormPlace::kBoth; },
       {"norm_place", "both", "llama"}},
      {"llama3-8b",
       [](ModelConfig& c) { c.rope_scaling.factor = 8; },
       {"rope_scaling.original_max_position_embeddings", "0"}},
      {"llama3-8b",
       [](ModelConfig& c) { c.rope_scaling.original_positions = 8192; },
       {"rope_scaling.factor is 1", "8,192"}},
      {"llama3.1-8b", [](ModelConfig& c) { c.rope_scaling.factor = 0.5; }, {"factor", "0.5"}},
      {"llama3.1-8b",
       [](ModelConfig& c) { c.rope_scaling.low_freq = 0; },
       {"low_freq_factor is 0", "high_freq_factor is 4"}},
      {"llama3.1-8b",
       [](ModelConfig& c) { c.rope_scaling.high_freq = 1; },
       {"low_freq_factor is 1", "high_freq_factor is 1"}},
      {"gpt2-small",
       [](ModelConfig& c) { c.rope_scaling = {.factor = 8, .original_positions = 64}; },
       {"rope_scaling.factor", "gpt2"}},
      {"gpt2-small", [](ModelConfig& c) { c.head_dim = 60; }, {"12", "60", "720", "768"}},
      {"gpt2-small", [](ModelConfig& c) { c.kv_heads = 4; }, {"kv_heads", "4", "heads", "12"}},
      {"gpt2-small",
       [](ModelConfig& c) { c.qk_norm = QkNorm::kWide; },
       {"qk_norm", "wide", "gpt2"}},
      {"gemma2-2b", [](ModelConfig& c) { c.window = 0; }, {"window", "0"}},
      {"gemma2-2b", [](ModelConfig& c) { c.window_every = 0; }, {"window_every", "0"}},
      {"mixtral-8x7b", [](ModelConfig& c) { c.moe.top_k = 9; }, {"moe.top_k", "9", "8"}},
      {"mixtral-8x7b", [](ModelConfig& c) { c.moe.top_k = 0; }, {"moe.top_k", "0"}},
      {"mixtral-8x7b", [](ModelConfig& c) { c.moe.expert_ffn = 0; }, {"moe.expert_ffn", "0"}},
      {"mixtral-8x7b", [](ModelConfig& c) { c.moe.shared_gate = true; }, {"moe.shared_ffn"}},
      {"deepseek-v3", [](ModelConfig& c) { c.moe.dense_layers = 62; }, {"62", "61"}},
      {"deepseek-v3", [](ModelConfig& c) { c.head_dim = 128; }, {"128", "64", "192"}},
      {"deepseek-v3", [](ModelConfig& c) { c.mla.rope_dim = 63; }, {"mla.rope_dim", "63"}},
      {"deepseek-v3", [](ModelConfig& c) { c.kv_heads = 8; }, {"kv_heads", "8", "128"}},
      {"deepseek-v3", [](ModelConfig& c) { c.qkv_bias = true; }, {"qkv_bias", "deepseek"}},
      {"llama3-405b",
       [](ModelConfig& c) { c.layers = c.hidden = c.ffn = 2'000'000'000; },
       {"parameters"}},
  };
  return all;
}

TEST(Problems, NameBothSidesOfEveryContradiction) {
  for (const Breakage& breakage : breakages()) {
    ModelConfig config = find(breakage.row)->config;
    ASSERT_TRUE(problems(config).empty());
    breakage.change(config);
    const std::vector<Problem> found = problems_by_field(config);
    ASSERT_FALSE(found.empty()) << breakage.row << " " << breakage.named.front();
    bool said = false;
    std::string all;
    for (const Problem& problem : found) {
      const Error& error = problem.error;
      EXPECT_FALSE(problem.fields.empty()) << error.message;
      for (const std::string& field : problem.fields)
        EXPECT_NE(model_fields().find(field), nullptr) << field;
      EXPECT_EQ(error.code, Code::kBadModel);
      all += error.message + "\n";
      bool complete = error.message.find(breakage.row) != std::string::npos;
      for (const std::string& part : breakage.named)
        complete = complete && error.message.find(part) != std::string::npos;
      said = said || complete;
    }
    EXPECT_TRUE(said) << all;
    EXPECT_FALSE(describe(config).ok());
  }
}

TEST(Problems, AreAllReportedAtOnce) {
  ModelConfig config = find("mixtral-8x7b")->config;
  config.kv_heads = 7;
  config.moe.top_k = 99;
  config.vocab = 0;
  EXPECT_EQ(problems(config).size(), 3u);
}

// Whatever numbers come in, either problems() speaks or describe() works without overflow.
TEST(Problems, EitherRefuseOrDescribe) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int64_t old) {
    static constexpr std::int64_t kOdd[] = {
        -1, 0, 1, 3, 64, 1 << 20, (std::int64_t{1} << 31), INT64_MAX, INT64_MIN};
    return random() % 3 == 0 ? kOdd[random() % std::size(kOdd)] : old;
  };
  int refused = 0;
  int described = 0;
  for (int i = 0; i < 4000; ++i) {
    ModelConfig c = catalog()[random() % catalog().size()].config;
    for (std::int64_t* field :
         {&c.hidden,      &c.heads,          &c.kv_heads,       &c.head_dim,         &c.ffn,
          &c.vocab,       &c.max_positions,  &c.window,         &c.window_every,     &c.moe.experts,
          &c.moe.top_k,   &c.moe.expert_ffn, &c.moe.shared_ffn, &c.moe.dense_layers, &c.mla.q_rank,
          &c.mla.kv_rank, &c.mla.nope_dim,   &c.mla.rope_dim,   &c.mla.v_dim,        &c.mtp_layers})
      if (random() % 8 == 0) *field = pick(*field);
    const bool bad = !problems(c).empty();
    const Result<Model> model = describe(c);
    ASSERT_EQ(model.ok(), !bad);
    bad ? ++refused : ++described;
    if (bad) continue;
    const ParamCount counted = count(*model);
    EXPECT_GT(counted.total, 0);
    EXPECT_LE(counted.total, std::int64_t{10'000'000'000'000'000});
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(described, 500);
}

}  // namespace
}  // namespace lockstep::model
