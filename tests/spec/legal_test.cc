#include "lockstep/spec/legal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "lockstep/base/check.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/spec/shrink.h"
#include "tests/support/golden.h"

namespace lockstep::spec {
namespace {

struct Asked {
  model::ModelConfig model = model::find("llama3-8b")->config;
  Layout layout = {.degrees = {.pp = 2, .dp = 4}};
  Batch batch = {.seq = 1024, .global_batch = 32, .microbatch = 2};
  DType dtype = DType::kF32;

  std::vector<Error> refusals() const { return legal(model, layout, batch, dtype); }
};

// A change that is refused, and the change on top of it that the help proposes.
struct Refusal {
  const char* what;
  std::function<void(Asked&)> wrong;
  std::function<void(Asked&)> nearest;
};

std::vector<Refusal> of_recompute() {
  return {
      {"rows of a block that keeps none",
       [](Asked& a) { a.layout.recompute = {{.product = true, .block = true}}; },
       [](Asked& a) { a.layout.recompute = {model::kWholeBlock}; }},
      {"blocks of more stages than there are",
       [](Asked& a) { a.layout.recompute = {model::kWholeBlock, {1, 1, 1}}; },
       [](Asked& a) { a.layout.recompute.blocks.pop_back(); }},
      {"more blocks of a stage than it has",
       [](Asked& a) { a.layout.recompute = {model::kWholeBlock, {17, 0}}; },
       [](Asked& a) { a.layout.recompute.blocks[0] = 15; }},
      {"every block of every stage, counted",
       [](Asked& a) { a.layout.recompute = {model::kWholeBlock, {16, 16}}; },
       [](Asked& a) { a.layout.recompute = {model::kWholeBlock}; }},
      {"no block of any stage", [](Asked& a) { a.layout.recompute = {model::kWholeBlock, {0, 0}}; },
       [](Asked& a) { a.layout.recompute.blocks[0] = 1; }}};
}

std::vector<Refusal> of_degrees_and_schedules() {
  return {
      {"key-value heads that tensor ranks cannot share evenly",
       [](Asked& a) {
         a.model.heads = 48, a.model.kv_heads = 16, a.model.ffn = 14'400;
         a.layout.degrees = {.tp = 24, .dp = 2}, a.layout.sp = false;
       },
       [](Asked& a) { a.layout.degrees.tp = 16; }},
      {"tensor ranks that heads do not divide among",
       [](Asked& a) { a.layout.degrees = {.tp = 3, .dp = 2}, a.batch.seq = 1023; },
       [](Asked& a) { a.layout.degrees.tp = 2, a.batch.seq = 1024; }},
      {"an MLP that does not divide",
       [](Asked& a) { a.layout.degrees = {.tp = 4, .dp = 2}, a.model.ffn = 14'338; },
       [](Asked& a) { a.layout.degrees.tp = 2; }},
      {"sequences that tensor ranks do not divide",
       [](Asked& a) { a.layout.degrees = {.tp = 8, .dp = 2}, a.batch.seq = 1020; },
       [](Asked& a) { a.layout.sp = false; }},
      {"context ranks that heads cannot be dealt to",
       [](Asked& a) {
         a.layout.degrees = {.tp = 8, .cp = 8, .dp = 1};
         a.layout.context = model::CpMethod::kUlysses;
       },
       [](Asked& a) { a.layout.degrees.cp = 4; }},
      {"a way of context parallelism without any",
       [](Asked& a) { a.layout.context = model::CpMethod::kGather; },
       [](Asked& a) { a.layout.context = model::CpMethod::kRing; }},
      {"expert axes of a dense model", [](Asked& a) { a.layout.degrees.ep = 2; },
       [](Asked& a) { a.layout.degrees.ep = 1; }},
      {"shards without sharding",
       [](Asked& a) { a.layout.zero = 0, a.layout.degrees.dp_shard = 2; },
       [](Asked& a) { a.layout.zero = 1; }},
      {"shards that do not divide", [](Asked& a) { a.layout.degrees.dp_shard = 3; },
       [](Asked& a) { a.layout.degrees.dp_shard = 2; }},
      {"resident units without stage 3", [](Asked& a) { a.layout.resident = 2; },
       [](Asked& a) { a.layout.zero = 3; }},
      {"prefetch without stage 3", [](Asked& a) { a.layout.zero = 2, a.layout.prefetch = 1; },
       [](Asked& a) { a.layout.prefetch.reset(); }},
      {"virtual stages of a schedule that has none", [](Asked& a) { a.layout.chunks = 2; },
       [](Asked& a) { a.layout.chunks = 1; }},
      {"a schedule of two virtual stages with one", [](Asked& a) { a.layout.schedule = "zbv"; },
       [](Asked& a) { a.layout.chunks = 2; }},
      {"too few microbatches for the schedule",
       [](Asked& a) { a.layout = *parse_layout("pp4 dp4 zero1 dualpipe-v vpp2 step"); },
       [](Asked& a) { a.layout.schedule = "zbv"; }},
      {"more stages than layers", [](Asked& a) { a.layout.degrees = {.pp = 64, .dp = 4}; },
       [](Asked& a) { a.layout.degrees.pp = 32; }},
      {"more stages than layers, by virtual stages",
       [](Asked& a) { a.layout.degrees.pp = 32, a.layout.chunks = 2; },
       [](Asked& a) { a.layout.chunks = 1; }},
      {"an unknown schedule", [](Asked& a) { a.layout.schedule = "1f2b"; },
       [](Asked& a) { a.layout.schedule = "1f1b"; }},
      {"a stage of ZeRO that is none", [](Asked& a) { a.layout.zero = 4; },
       [](Asked& a) { a.layout.zero = 3; }},
  };
}

const std::vector<Refusal>& combinations() {
  static const std::vector<Refusal> all = [] {
    std::vector<Refusal> list = of_degrees_and_schedules();
    std::ranges::copy(of_recompute(), std::back_inserter(list));
    return list;
  }();
  return all;
}

const std::vector<Refusal>& batches_and_stages() {
  static const std::vector<Refusal> all = {
      {"layers that are not the model's", [](Asked& a) { a.layout.layers = {16, 15}; },
       [](Asked& a) { a.layout.layers = {17, 15}; }},
      {"layers of more stages than there are", [](Asked& a) { a.layout.layers = {11, 11, 10}; },
       [](Asked& a) { a.layout.layers.clear(); }},
      {"a stage between the ends without layers",
       [](Asked& a) { a.layout.degrees.pp = 4, a.layout.layers = {16, 0, 8, 8}; },
       [](Asked& a) { a.layout.layers.clear(); }},
      {"a batch that does not divide", [](Asked& a) { a.batch.global_batch = 36; },
       [](Asked& a) { a.batch.global_batch = 40; }},
      {"another number of microbatches", [](Asked& a) { a.layout.microbatches = 8; },
       [](Asked& a) { a.layout.microbatches = 4; }},
      {"a ramp without samples", [](Asked& a) { a.batch.ramp = {64, 64, 0}; },
       [](Asked& a) { a.batch.ramp = {}; }},
      {"a ramp from above the batch", [](Asked& a) { a.batch.ramp = {32, 8, 100}; },
       [](Asked& a) { a.batch.ramp = {}; }},
      {"a ramp from what is not cut", [](Asked& a) { a.batch.ramp = {7, 8, 100}; },
       [](Asked& a) { a.batch.ramp.start = 8; }},
      {"a ramp that misses the batch", [](Asked& a) { a.batch.ramp = {8, 16, 100}; },
       [](Asked& a) { a.batch.ramp.increment = 8; }},
  };
  return all;
}

const std::vector<Refusal>& models_and_types() {
  const auto model = [](const char* name) {
    return [name](Asked& a) { a.model = model::find(name)->config; };
  };
  static const std::vector<Refusal> all = {
      {"whole numbers", [](Asked& a) { a.dtype = DType::kI32; },
       [](Asked& a) { a.dtype = DType::kBF16; }},
      {"whole experts for tensor ranks that have all tokens",
       [](Asked& a) {
         a.model = model::find("mixtral-8x7b")->config;
         a.layout.degrees = {.tp = 2, .pp = 2, .dp = 2};
         a.layout.sp = false;
       },
       [](Asked& a) { a.layout.sp = true; }},
      {"experts on more ranks than tensor ranks",
       [](Asked& a) {
         a.model = model::find("mixtral-8x7b")->config;
         a.layout.degrees = {.tp = 2, .pp = 2, .dp = 2, .etp = 4};
       },
       [](Asked& a) { a.layout.degrees.etp = 2; }},
      {"latent attention", model("deepseek-v3"), model("llama3-8b")},
      {"a norm without parameters", model("olmo-7b"),
       [](Asked& a) { a.model.norm = model::NormKind::kRmsNorm; }},
      {"a model that contradicts itself", [](Asked& a) { a.model.kv_heads = 5; },
       [](Asked& a) { a.model.kv_heads = 8; }},
  };
  return all;
}

// All blocks of every stage have a name of their own, but not with rows that they drop besides.
TEST(Legal, AllBlocksAreCountedWithRowsAlone) {
  Asked asked;
  model::Drop drop = model::kSelective;
  drop.block = true;
  asked.layout.recompute = {drop, {16, 16}};
  EXPECT_TRUE(asked.refusals().empty());
  asked.layout.recompute = {model::kWholeBlock, {16, 16}};
  EXPECT_FALSE(asked.refusals().empty());
}

TEST(Legal, EveryRefusalNamesBothSettingsAndTheNearestLegalOnes) {
  std::string text;
  for (const auto* group : {&combinations(), &batches_and_stages(), &models_and_types()})
    for (const Refusal& refusal : *group) {
      Asked asked;
      ASSERT_TRUE(asked.refusals().empty()) << asked.refusals()[0].message;
      refusal.wrong(asked);
      const std::vector<Error> errors = asked.refusals();
      EXPECT_FALSE(errors.empty()) << refusal.what;
      text += join_parts(refusal.what, ": ", to_text(asked.layout), "\n");
      for (const Error& error : errors) {
        EXPECT_NE(error.help, "") << error.message;
        text += join_parts("error[", to_text(error.code), "]: ", error.message,
                           "\n  help: ", error.help, "\n");
      }
      text += "\n";
      refusal.nearest(asked);
      const std::vector<Error> left = asked.refusals();
      EXPECT_TRUE(left.empty()) << refusal.what << " after following the help: " << left[0].message;
    }
  EXPECT_TRUE(support::matches_golden("plan/refusals.txt", text));
}

TEST(Legal, TensorRanksRunWithSequenceParallelismOrWithout) {
  for (const std::int64_t tp : {1, 2, 4, 8})
    for (const bool sp : {true, false})
      for (int zero = 0; zero <= 3; ++zero) {
        Asked asked;
        asked.layout = {.degrees = {.tp = tp, .pp = 2, .dp = 4}, .sp = sp, .zero = zero};
        EXPECT_TRUE(asked.refusals().empty()) << to_text(asked.layout);
      }
}

TEST(Legal, TensorRanksMayOutnumberKeyValueHeadsAndPadTheVocabulary) {
  for (const std::int64_t tp : {2, 4, 8, 16, 32}) {
    Asked asked;
    asked.model.vocab = 50'257;
    asked.layout.degrees = {.tp = tp, .dp = 2};
    EXPECT_TRUE(asked.refusals().empty()) << asked.refusals()[0].message;
  }
}

TEST(Legal, FamiliesRun) {
  for (const char* name : {"gpt2-tiny", "llama-tiny", "mistral-7b", "qwen2-0.5b", "qwen3-0.6b"}) {
    Asked asked;
    asked.model = model::find(name)->config;
    asked.batch.seq = 128;
    asked.layout.degrees.pp = 1;
    EXPECT_TRUE(asked.refusals().empty()) << asked.refusals()[0].message;
  }
}

TEST(Legal, ADataGroupOfOneTakesEveryStage) {
  for (int zero = 0; zero <= 3; ++zero)
    for (const Period reduce : {Period::kStep, Period::kMicrobatch})
      for (const std::int64_t dp : {1, 4})
        for (const std::int64_t shard : {std::int64_t{1}, dp}) {
          if (zero == 0 && shard != dp) continue;
          Asked asked;
          asked.layout = {.degrees = {.dp = dp, .dp_shard = shard}, .zero = zero, .reduce = reduce};
          EXPECT_TRUE(asked.refusals().empty()) << to_text(asked.layout);
        }
}

TEST(Legal, ReportsIndependentReasonsTogether) {
  Asked asked;
  asked.layout.degrees = {.tp = 2, .cp = 2, .pp = 64, .dp = 2, .dp_shard = 1};
  asked.layout.zero = 0;
  asked.layout.chunks = 3;
  asked.dtype = DType::kI32;
  std::vector<Code> codes;
  for (const Error& error : asked.refusals()) codes.push_back(error.code);
  EXPECT_EQ(codes, (std::vector{Code::kConflict, Code::kOutOfRange, Code::kBadDegree,
                                Code::kUnknownChoice}));
}

// Nonsense is refused, never multiplied or divided by.
TEST(Legal, SurvivesAnyNumbers) {
  const std::int64_t values[] = {0, -1, 1, 2147483647, std::int64_t{1} << 62};
  for (const std::int64_t a : values)
    for (const std::int64_t b : values) {
      Asked asked;
      asked.layout.degrees = {.tp = a, .cp = b, .pp = a, .dp = b, .dp_shard = a, .ep = b};
      asked.layout.microbatches = a;
      asked.layout.chunks = static_cast<int>(std::min<std::int64_t>(b, 2147483647));
      asked.batch = {.seq = a, .global_batch = b, .microbatch = a};
      const bool all_ones = a == 1 && b == 1;
      EXPECT_EQ(asked.refusals().empty(), all_ones) << a << " " << b;
    }
}

TEST(Shrink, KeepsWhatCanBeKeptOfEveryKnownModel) {
  for (const model::CatalogRow& row : model::catalog()) {
    const model::ModelConfig& large = row.config;
    const model::ModelConfig small = shrink(large);
    ASSERT_TRUE(model::problems(small).empty())
        << large.name << ": " << model::problems(small)[0].message;
    EXPECT_EQ(shrink(small), small) << large.name;
    if (small == large) continue;  // the tiny rows
    EXPECT_EQ(small.name, large.name + "-small");
    EXPECT_LE(small.layers, 4);
    EXPECT_TRUE(small.hidden % 32 == 0 && small.hidden >= 64 && small.hidden <= 128) << large.name;
    EXPECT_LE(small.vocab, 512);
    EXPECT_GE(small.max_positions, 64);
    EXPECT_EQ(small.heads / small.kv_heads, std::min<std::int64_t>(8, large.heads / large.kv_heads))
        << large.name;
    EXPECT_EQ(small.kv_heads > 1, large.kv_heads > 1) << large.name;
    EXPECT_EQ(small.vocab % 128, large.vocab % 128);
    EXPECT_EQ(small.ffn % 32, 0);
    EXPECT_EQ(small.moe.experts > 0, large.moe.experts > 0);
    model::ModelConfig traits = large;
    traits.name = small.name, traits.layers = small.layers, traits.hidden = small.hidden,
    traits.heads = small.heads, traits.kv_heads = small.kv_heads, traits.head_dim = small.head_dim,
    traits.ffn = small.ffn, traits.vocab = small.vocab, traits.max_positions = small.max_positions,
    traits.moe.experts = small.moe.experts, traits.moe.top_k = small.moe.top_k,
    traits.moe.expert_ffn = small.moe.expert_ffn, traits.moe.shared_ffn = small.moe.shared_ffn,
    traits.moe.groups = small.moe.groups, traits.moe.top_groups = small.moe.top_groups,
    traits.moe.dense_layers = small.moe.dense_layers, traits.mla = small.mla,
    traits.window = small.window;
    EXPECT_EQ(traits, small) << large.name << " lost a trait";
    EXPECT_EQ(small.moe.groups > 1, large.moe.groups > 1) << large.name;
    const Batch batch{.seq = 64, .global_batch = 1, .microbatch = 1};
    EXPECT_EQ(legal(large, {}, batch, DType::kF64).size(),
              legal(small, {}, batch, DType::kF64).size())
        << large.name;
  }
}

TEST(Shrink, KeepsHeadsForTensorRanks) {
  const model::ModelConfig large = model::find("llama3-8b")->config;
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    const model::ModelConfig small = shrink(large, tp);
    EXPECT_EQ(small.kv_heads, std::max<std::int64_t>(2, tp));
    EXPECT_EQ(small.heads, 4 * small.kv_heads);
    EXPECT_TRUE(
        legal(small, {.degrees = {.tp = tp}}, {.seq = 32, .global_batch = 1}, DType::kF32).empty());
  }
  EXPECT_EQ(shrink(large, 16).kv_heads, 8);
}

TEST(Shrink, LeavesASmallModelAlone) {
  model::ModelConfig own = model::find("llama3-8b")->config;
  own.layers = 2, own.hidden = 48, own.heads = 3, own.kv_heads = 3, own.head_dim = 16, own.ffn = 96;
  own.vocab = 77, own.max_positions = 32;
  EXPECT_EQ(shrink(own), own);
}

}  // namespace
}  // namespace lockstep::spec
