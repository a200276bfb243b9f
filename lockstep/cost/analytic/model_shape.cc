#include "lockstep/cost/analytic/model_shape.h"

#include <algorithm>
#include <cmath>

namespace lockstep::cost {
namespace {

double norm_params(const ModelShape& s) {
  return s.plain_norms ? 0 : s.hidden * (s.layer_norm ? 2 : 1);
}

PartParams attention_params(const ModelShape& s, double tp) {
  const double h = s.hidden;
  PartParams sum;
  if (s.kv_rank > 0) {
    const double nope = s.qk_dim - s.rope_dim;
    if (s.q_rank > 0) {
      sum.replicated += h * s.q_rank + s.q_rank;
      sum.tensor += s.q_rank * s.q();
    } else {
      sum.tensor += h * s.q();
    }
    sum.replicated += h * (s.kv_rank + s.rope_dim) + s.kv_rank;
    sum.tensor += s.kv_rank * s.heads * (nope + s.v_dim) + s.values() * h;
    return sum;
  }
  const double k = std::max(s.k(), tp * s.qk_dim);
  sum.tensor = h * (s.q() + 2 * k) + s.q() * h;
  if (s.biases) sum.tensor += s.q() + 2 * k, sum.replicated += h;
  if (s.wide_qk_norm) sum.tensor += s.q() + k;
  return sum;
}

double causal_keys(double seq, double window) {
  const double w = window > 0 ? std::min(seq, window) : seq;
  return (w * (w + 1) / 2 + (seq - w) * w) / seq;
}

}  // namespace

double ModelShape::expert_layers() const {
  if (!has_experts()) return 0;
  return std::floor((layers - dense_layers) / moe_every);
}

PartParams& PartParams::operator+=(const PartParams& other) {
  tensor += other.tensor;
  replicated += other.replicated;
  expert += other.expert;
  return *this;
}

PartParams operator*(PartParams one, double times) {
  return {one.tensor * times, one.replicated * times, one.expert * times};
}

ModelShape shape_of(const model::ModelConfig& c) {
  ModelShape s;
  s.layers = static_cast<int>(c.layers + c.mtp_layers);
  s.hidden = static_cast<double>(c.hidden);
  s.heads = static_cast<double>(c.heads);
  s.kv_heads = static_cast<double>(c.kv_heads);
  s.qk_dim = static_cast<double>(c.head_dim);
  s.v_dim = c.mla.kv_rank > 0 ? static_cast<double>(c.mla.v_dim) : s.qk_dim;
  s.ffn = static_cast<double>(c.ffn);
  s.vocab = static_cast<double>(c.vocab);
  s.mlp_matrices = model::activation(c) == model::Activation::kGelu ? 2 : 3;
  if (model::positions(c) == model::Positions::kLearned)
    s.learned_positions = static_cast<double>(c.max_positions);
  s.tied = c.tied;
  s.layer_norm = c.norm == model::NormKind::kLayerNorm;
  s.biases = c.linear_bias;
  s.norms = c.norm_place == model::NormPlace::kBoth ? 4 : 2;
  s.input_norms = c.norm_place == model::NormPlace::kAfter ? 0 : 2;
  s.plain_norms = c.norm == model::NormKind::kPlain;
  s.wide_qk_norm = c.qk_norm == model::QkNorm::kWide;
  // One of all positions is none, beyond them too.
  if (c.window < c.max_positions) s.window = static_cast<double>(c.window);
  s.window_every = static_cast<double>(c.window_every);
  s.experts = static_cast<double>(c.moe.experts);
  s.top_k = static_cast<double>(c.moe.top_k);
  s.expert_ffn = static_cast<double>(c.moe.expert_ffn);
  s.shared_ffn = static_cast<double>(c.moe.shared_ffn);
  s.dense_layers = static_cast<double>(c.moe.dense_layers);
  // DeepSeek-V3 (arXiv 2412.19437), section 2.1.2: at most four nodes; V2 (2405.04434), 2.2.2:
  // three devices.
  if (c.family == model::Family::kDeepSeek) s.routed_nodes = 4;
  s.q_rank = static_cast<double>(c.mla.q_rank);
  s.kv_rank = static_cast<double>(c.mla.kv_rank);
  s.rope_dim = static_cast<double>(c.mla.rope_dim);
  return s;
}

PartParams plain_layer_params(const ModelShape& s, double tp) {
  PartParams sum = attention_params(s, tp);
  sum.tensor += s.mlp_matrices * s.hidden * s.ffn;
  if (s.biases) sum.tensor += s.ffn, sum.replicated += s.hidden;
  sum.replicated += s.norms * norm_params(s);
  return sum;
}

PartParams expert_layer_params(const ModelShape& s, double tp) {
  PartParams sum = attention_params(s, tp);
  sum.tensor += 3 * s.hidden * s.shared_ffn;
  sum.replicated += s.norms * norm_params(s) + s.hidden * s.experts;
  sum.expert = s.experts * 3 * s.hidden * s.expert_ffn;
  return sum;
}

PartParams embedding_params(const ModelShape& s) {
  return {s.vocab * s.hidden, s.learned_positions * s.hidden, 0};
}

PartParams head_params(const ModelShape& s) { return {s.vocab * s.hidden, norm_params(s), 0}; }

double mean_keys(const ModelShape& s, double seq) {
  if (s.window <= 0) return causal_keys(seq, 0);
  const double local = 1 / s.window_every;
  return local * causal_keys(seq, s.window) + (1 - local) * causal_keys(seq, 0);
}

ForwardFlops forward_flops(const ModelShape& s, double seq) {
  const PartParams attention = attention_params(s, 1);
  const double mixers = attention.total() - (s.biases ? s.q() + 2 * s.k() + s.hidden : 0) -
                        (s.wide_qk_norm ? s.q() + s.k() : 0) -
                        (s.kv_rank > 0 ? s.kv_rank + s.q_rank : 0);
  double weights = s.layers * mixers + s.plain_layers() * s.mlp_matrices * s.hidden * s.ffn;
  weights +=
      s.expert_layers() * s.hidden * (3 * (s.top_k * s.expert_ffn + s.shared_ffn) + s.experts);
  weights += s.vocab * s.hidden;
  const double per_key = 2 * s.heads * (s.qk_dim + s.v_dim) * s.layers;
  return {2 * weights, per_key * mean_keys(s, seq), per_key * seq};
}

}  // namespace lockstep::cost
