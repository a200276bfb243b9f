// Blocks of every combination of traits on tensor ranks that the interpreter runs, with an input
// and a loss.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/catalog.h"
#include "tests/parts/interpreter.h"

namespace lockstep::parts {

using model::ModelConfig;
using model::UnitSizes;

inline constexpr int kBatch = 2, kSeq = 3, kHidden = 6;

inline constexpr int kOlmo2 = 32 + 64, kGemma2 = 2 * 64 + 192 * 7;
inline constexpr int kDense = 3 * 64 * 8, kSigmoid = kDense + 32, kTraits = kDense + 64;

// Of a mixture in place of the MLP: bit 0, weights of a token's experts add up to 1; bit 1, norms
// of heads; bit 2, windows; bit 3, losses of its router; bit 4, experts that every token meets,
// with a gate where there are norms of heads; bit 5, scores by sigmoid, with a bias and a scale, of
// one group of two where there are windows.
inline void mix(ModelConfig& c, int traits) {
  c.family = model::Family::kMoe;
  c.ffn = 0;
  c.moe = {.experts = 3, .top_k = 2, .expert_ffn = 4, .norm_topk_prob = (traits & 1) != 0};
  if ((traits & 2) != 0) c.qk_norm = model::QkNorm::kPerHead;
  if ((traits & 4) != 0) c.window = 2;
  if ((traits & 16) != 0) c.moe.shared_ffn = 2, c.moe.shared_gate = (traits & 2) != 0;
  if ((traits & 32) == 0) return;
  c.moe.score = model::RouterScore::kSigmoid;
  c.moe.router_bias = true;
  c.moe.routed_scale = 1.5;
  if ((traits & 4) != 0) c.moe.experts = 4, c.moe.groups = 2;
}

inline ModelConfig config_of(int all_traits) {
  const int traits = all_traits < kDense ? all_traits : 0;
  ModelConfig c = model::find((traits & 1) != 0 ? "gpt2-tiny" : "llama-tiny")->config;
  c.hidden = kHidden, c.heads = 4, c.kv_heads = 2, c.head_dim = 4, c.ffn = 4;
  c.norm = (traits & 2) != 0 ? model::NormKind::kLayerNorm : model::NormKind::kRmsNorm;
  c.qk_norm = (traits & 32) != 0  ? model::QkNorm::kWide
              : (traits & 4) != 0 ? model::QkNorm::kPerHead
                                  : model::QkNorm::kNone;
  c.norm_place = static_cast<model::NormPlace>(traits / 64 % 3);
  const int more = traits / 192;
  if ((more & 1) != 0) c.attention_softcap = 1.5, c.query_scale_dim = 7.0;
  if ((more & 2) != 0) c.window = 2;
  if ((more & 4) != 0 && (traits & 3) == 0) {
    c.family = model::Family::kGemma2;
    c.norm = model::NormKind::kRmsNormPlusOne;
  }
  c.qkv_bias = (traits & 8) != 0;
  c.linear_bias = (traits & 16) != 0;
  if (all_traits >= kDense) mix(c, all_traits - kDense);
  return c;
}

inline model::Unit block_of(const ModelConfig& config) {
  model::Unit unit;
  if (config.moe.experts > 0) unit.params.emplace_back().experts = config.moe.experts;
  unit.attention = {config.heads, config.kv_heads, config.head_dim, config.head_dim, config.window};
  return unit;
}

inline Numbers random_numbers(unsigned seed, int n) {
  std::mt19937 random(seed);
  std::normal_distribution<double> any;
  Numbers x;
  for (int i = 0; i < n; ++i) x.push_back(any(random));
  return x;
}

// A block on all its tensor ranks, its input, and the loss: the sum of its output times `slope`.
struct Rig {
  Rig(const ModelConfig& config, const UnitSizes& sizes)
      : wide(config.qk_norm == model::QkNorm::kWide),
        passes(config, block_of(config), sizes),
        run(passes, config),
        input(random_numbers(1, kBatch * kSeq * kHidden)),
        slope(random_numbers(2, kBatch * kSeq * kHidden)) {
    for (unsigned r = 0; r < sizes.tp; ++r) {
      params.push_back(run.random_params(7 + r));
      for (auto& [name, numbers] : params[r]) numbers = params[first_alike(name, r)][name];
    }
  }

  // A tensor rank has its own piece, or the same as all.
  bool is_whole(const std::string& name) const {
    if (wide && name[1] == '_') return false;
    return name.find("norm") != std::string::npos || name == "attn_out_bias" ||
           name == "down_bias" || name == "router" || name == "shared_gate";
  }

  // The first rank that has the same as `rank`; experts are alike on ranks that share none.
  std::size_t first_alike(const std::string& name, std::size_t rank) const {
    if (is_whole(name)) return 0;
    const auto etp = static_cast<std::size_t>(passes.sizes().etp);
    return name.starts_with("experts_") ? rank % etp : rank;
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
      if (passes.sizes().shares_rows)
        ranks[r].first_row = static_cast<std::int64_t>(r) * passes.sizes()[Dim::kP];
      run.write(ranks[r], passes.at(pass), passes.at(pass).before[0], rows(input, r));
    }
    return ranks;
  }

  double loss() const {
    std::vector<RankState> ranks = start(UnitPass::kEvaluate);
    run.run(ranks, passes.at(UnitPass::kEvaluate));
    double sum = 0;
    const std::size_t copies = passes.sizes().shares_rows ? ranks.size() : 1;
    for (std::size_t r = 0; r < copies; ++r) {
      const Pass& pass = passes.at(UnitPass::kEvaluate);
      const Numbers out = run.read(ranks[r], pass, pass.after[0]), weights = rows(slope, r);
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    }
    return passes.sizes().has_aux_loss ? sum + router_losses() : sum;
  }

  // Of all tokens, by what their routers made of them.
  Numbers all_choices(const Pass& pass, std::vector<RankState>& ranks) const {
    Numbers choices;
    const auto id = std::ranges::find(pass.after, "choices",
                                      [&](ValueId kept) { return passes.values()[kept].name; });
    for (std::size_t r = 0; r < (passes.sizes().shares_rows ? ranks.size() : 1); ++r)
      std::ranges::copy(run.read(ranks[r], pass, *id), std::back_inserter(choices));
    return choices;
  }
  // By definition, of the logits of all tokens.
  double router_losses() const {
    const Pass& pass = passes.at(UnitPass::kForward);
    const model::Moe& moe = passes.sizes().moe;
    const auto id = std::ranges::find(pass.after, "router_logits",
                                      [&](ValueId kept) { return passes.values()[kept].name; });
    std::vector<RankState> ranks = start(UnitPass::kForward);
    run.run(ranks, pass);
    Numbers logits;
    for (std::size_t r = 0; r < (passes.sizes().shares_rows ? ranks.size() : 1); ++r)
      std::ranges::copy(run.read(ranks[r], pass, *id), std::back_inserter(logits));
    const std::size_t e = passes.sizes()[Dim::kExperts], top = passes.sizes()[Dim::kTop];
    double aux = 0, z = 0;
    const Numbers choices = all_choices(pass, ranks);
    for (std::size_t begin = 0; begin < logits.size(); begin += kSeq * e) {
      Numbers share(e), times(e);
      for (std::size_t token = begin; token < begin + kSeq * e; token += e) {
        double sum = 0, all = 0;
        for (std::size_t i = 0; i < e; ++i) {
          sum += std::exp(logits[token + i]);
          all += score_of(&logits[token], i, moe);
        }
        z += std::log(sum) * std::log(sum);
        for (std::size_t i = 0; i < e; ++i)
          share[i] += score_of(&logits[token], i, moe) / all / kSeq;
        for (std::size_t i = 0; i < top; ++i)
          times[static_cast<std::size_t>(choices[token / e * top + i])] +=
              static_cast<double>(e) / static_cast<double>(top * kSeq);
      }
      for (std::size_t i = 0; i < e; ++i) aux += share[i] * times[i];
    }
    return kAuxLoss * aux / kBatch + kZLoss * z / (kBatch * kSeq);
  }

  // Every rank's gradients, that of the input under "input"; and the output. `instead`: run in
  // place of the unit's own.
  std::vector<Named> gradients(bool at_once, bool recomputes,
                               const std::map<UnitPass, Pass>& instead = {}) const {
    const auto list = [&](UnitPass pass) -> const Pass& {
      const auto found = instead.find(pass);
      return found == instead.end() ? passes.at(pass) : found->second;
    };
    const UnitPass first = recomputes ? UnitPass::kCheckpoint : UnitPass::kForward;
    std::vector<RankState> ranks = start(first);
    run.run(ranks, list(first));
    for (RankState& rank : ranks)
      rank.grads["output"] = run.read(rank, list(first), passes.at(first).result);
    if (recomputes) run.run(ranks, list(UnitPass::kRecompute));
    const Pass& pass = list(at_once ? UnitPass::kBackward : UnitPass::kInputGrad);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      run.write(ranks[r], pass, pass.before.back(), rows(slope, r));
    run.run(ranks, pass);
    std::vector<Named> all;
    for (RankState& rank : ranks) rank.grads["input"] = run.read(rank, pass, pass.after.back());
    if (!at_once) run.run(ranks, list(UnitPass::kWeightGrad));
    for (RankState& rank : ranks) all.push_back(rank.grads);
    return all;
  }

  const bool wide;  // the norm of queries and keys
  const UnitPasses passes;
  const Interpreter run;
  Numbers input, slope;
  std::vector<Named> params;
};

// Of a block on tensor ranks; of a mixture maybe with whole experts on each of them.
struct Ways {
  int tp = 1;
  bool sp = false, whole = false;
  std::string text() const {
    return std::to_string(tp) + (sp ? " sp" : "") + (whole ? " whole experts" : "");
  }
};
inline std::vector<Ways> ways_of(int traits) {
  std::vector<Ways> all = {{1}, {2}, {2, true}};
  if (traits >= kDense) all.push_back({2, true, true});
  return all;
}

inline UnitSizes sizes_of(int traits, Ways ways, DType dtype = DType::kF64, int mask = 0) {
  UnitSizes sizes{.batch = kBatch, .seq = kSeq, .dtype = dtype};
  if (traits >= kDense && ((traits - kDense) & 8) != 0)
    sizes.aux_loss_coeff = kAuxLoss, sizes.z_loss_coeff = kZLoss;
  sizes.tp = ways.tp;
  sizes.sequence_parallel = ways.sp;
  if (ways.whole) sizes.etp = 1;
  for (std::size_t row = 0; row < model::kDropRows.size(); ++row)
    sizes.drop.*model::kDropRows[row].is_dropped = (mask >> row & 1) != 0;
  return sizes;
}

}  // namespace lockstep::parts
