// Derived passes compute derivatives: against finite differences, for every combination of the
// traits of a block, on one rank and on tensor ranks; and no policy changes a bit of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lockstep/model/catalog.h"
#include "tests/parts/interpreter.h"

namespace lockstep::parts {
namespace {

using model::ModelConfig;
using model::UnitSizes;

constexpr int kBatch = 2, kSeq = 3, kHidden = 6;

ModelConfig config_of(int traits) {
  ModelConfig c = model::find((traits & 1) != 0 ? "gpt2-tiny" : "llama-tiny")->config;
  c.hidden = kHidden, c.heads = 4, c.kv_heads = 2, c.head_dim = 4, c.ffn = 4;
  c.norm = (traits & 2) != 0 ? model::NormKind::kLayerNorm : model::NormKind::kRmsNorm;
  c.qk_norm = (traits & 4) != 0 ? model::QkNorm::kPerHead : model::QkNorm::kNone;
  c.qkv_bias = (traits & 8) != 0;
  c.linear_bias = (traits & 16) != 0;
  return c;
}

Numbers random_numbers(unsigned seed, int n) {
  std::mt19937 random(seed);
  std::normal_distribution<double> any;
  Numbers x;
  for (int i = 0; i < n; ++i) x.push_back(any(random));
  return x;
}

// A tensor rank has its own piece, or the same as all.
bool is_whole(const std::string& name) {
  return name.find("norm") != std::string::npos || name == "attn_out_bias" || name == "down_bias";
}

// A block on all its tensor ranks, its input, and the loss: the sum of its output times `slope`.
struct Rig {
  Rig(const ModelConfig& config, const UnitSizes& sizes)
      : passes(config, model::Unit{}, sizes),
        run(passes, config.norm_eps),
        input(random_numbers(1, kBatch * kSeq * kHidden)),
        slope(random_numbers(2, kBatch * kSeq * kHidden)) {
    for (unsigned r = 0; r < sizes.tp; ++r) {
      params.push_back(run.random_params(7 + r));
      for (auto& [name, numbers] : params[r])
        if (is_whole(name)) numbers = params[0][name];
    }
  }

  Numbers rows(const Numbers& all, std::size_t rank) const {
    if (!passes.sizes().shares_rows) return all;
    const auto n = static_cast<std::ptrdiff_t>(all.size() / params.size());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank) * n;
    return {begin, begin + n};
  }
  std::vector<RankState> start(UnitPass pass) const {
    std::vector<RankState> ranks(params.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].params = params[r];
      run.write(ranks[r], passes.at(pass), passes.at(pass).before[0], rows(input, r));
    }
    return ranks;
  }

  double loss() const {
    std::vector<RankState> ranks = start(UnitPass::kEvaluate);
    run.run(ranks, UnitPass::kEvaluate);
    double sum = 0;
    const std::size_t copies = passes.sizes().shares_rows ? ranks.size() : 1;
    for (std::size_t r = 0; r < copies; ++r) {
      const Pass& pass = passes.at(UnitPass::kEvaluate);
      const Numbers out = run.read(ranks[r], pass, pass.after[0]), weights = rows(slope, r);
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    }
    return sum;
  }

  // Every rank's gradients, that of the input under "input".
  std::vector<Named> gradients(bool at_once, bool recomputes) const {
    std::vector<RankState> ranks = start(recomputes ? UnitPass::kCheckpoint : UnitPass::kForward);
    run.run(ranks, recomputes ? UnitPass::kCheckpoint : UnitPass::kForward);
    if (recomputes) run.run(ranks, UnitPass::kRecompute);
    const UnitPass half = at_once ? UnitPass::kBackward : UnitPass::kInputGrad;
    const Pass& pass = passes.at(half);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      run.write(ranks[r], pass, pass.before.back(), rows(slope, r));
    run.run(ranks, half);
    std::vector<Named> all;
    for (RankState& rank : ranks) rank.grads["input"] = run.read(rank, pass, pass.after.back());
    if (!at_once) run.run(ranks, UnitPass::kWeightGrad);
    for (RankState& rank : ranks) all.push_back(rank.grads);
    return all;
  }

  const UnitPasses passes;
  const Interpreter run;
  Numbers input, slope;
  std::vector<Named> params;
};

UnitSizes sizes_of(int tp, bool sp, DType dtype = DType::kF64, int mask = 0) {
  UnitSizes sizes{.batch = kBatch, .seq = kSeq, .dtype = dtype};
  sizes.tp = tp;
  sizes.sequence_parallel = sp;
  sizes.drop = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
  return sizes;
}

// How fast the loss grows with the numbers that `at` names, all at once.
double difference(Rig& rig, const std::vector<double*>& at) {
  constexpr double kStep = 1e-5;
  const double before = *at[0];
  const auto loss_at = [&](double x) {
    for (double* one : at) *one = x;
    return rig.loss();
  };
  const double slope = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
  loss_at(before);
  return slope;
}

void check_against_differences(Rig& rig) {
  const std::vector<Named> grads = rig.gradients(false, false);
  const bool sp = rig.passes.sizes().shares_rows;
  const auto same = [](double found, double want) {
    return std::abs(found - want) < 1e-7 * (1 + std::abs(want));
  };
  for (std::size_t r = 0; r < rig.params.size(); ++r)
    for (auto& [name, numbers] : rig.params[r]) {
      if (is_whole(name) && r > 0) continue;
      ASSERT_TRUE(grads[r].contains(name)) << name;
      for (std::size_t i = 0; i < numbers.size(); i += 1 + numbers.size() / 6) {
        std::vector<double*> at = {&numbers[i]};
        double found = grads[r].at(name)[i];
        for (std::size_t other = 1; is_whole(name) && other < rig.params.size(); ++other) {
          at.push_back(&rig.params[other][name][i]);
          // Ranks that have all rows find all of it, but of what every head uses.
          if (sp || name[1] == '_') found += grads[other].at(name)[i];
        }
        EXPECT_TRUE(same(found, difference(rig, at))) << name << " " << i << " " << found;
      }
    }
  for (std::size_t i = 0; i < rig.input.size(); i += 5) {
    const std::size_t mine = rig.input.size() / (sp ? rig.params.size() : 1);
    const double found = grads[i / mine].at("input")[i % mine];
    EXPECT_TRUE(same(found, difference(rig, {&rig.input[i]}))) << "input " << i;
  }
}

TEST(Derivatives, EqualFiniteDifferencesForAllTraits) {
  for (int traits = 0; traits < 32; ++traits)
    for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}}) {
      SCOPED_TRACE("traits " + std::to_string(traits) + " tp " + std::to_string(tp) +
                   (sp ? " sp" : ""));
      Rig rig(config_of(traits), sizes_of(tp, sp));
      check_against_differences(rig);
    }
}

// What is dropped, whether W follows at once, whether all is recomputed, and where a narrow type
// would place values: the same bits.
TEST(Derivatives, NoPolicyChangesABit) {
  int turn = 0;  // every policy meets every way to run it, of some traits
  for (int traits = 0; traits < 32; ++traits, ++turn)
    for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}}) {
      const ModelConfig config = config_of(traits);
      const auto want = Rig(config, sizes_of(tp, sp)).gradients(false, false);
      for (const DType dtype : {DType::kF64, DType::kBF16})
        for (int mask = 0; mask < 8; ++mask, ++turn) {
          const Rig rig(config, sizes_of(tp, sp, dtype, mask));
          EXPECT_EQ(rig.gradients((turn & 1) != 0, (turn & 2) != 0), want)
              << "traits " << traits << " tp " << tp << " sp " << sp << " mask " << mask;
        }
    }
}

}  // namespace
}  // namespace lockstep::parts
