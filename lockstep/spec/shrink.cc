#include "lockstep/spec/shrink.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lockstep::spec {
namespace {

constexpr std::int64_t kGrain = 32;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kHidden = 128;
constexpr std::int64_t kFfn = 512;
constexpr std::int64_t kVocab = 512;
constexpr std::int64_t kPositions = 256;
constexpr std::int64_t kWindow = 64;
constexpr std::int64_t kExperts = 8;
constexpr std::int64_t kHeadsPerKvHead = 8;

// part / whole of `size`, to the nearest multiple of kGrain, at least one and at most `limit`.
std::int64_t in_ratio(std::int64_t part, std::int64_t whole, std::int64_t size,
                      std::int64_t limit) {
  const double exact = static_cast<double>(part) / static_cast<double>(whole) *
                       static_cast<double>(size) / static_cast<double>(kGrain);
  const std::int64_t grains = limit / kGrain;
  const auto most = static_cast<double>(grains);
  return static_cast<std::int64_t>(std::clamp(exact + 0.5, 1.0, most)) * kGrain;
}

void shrink_latent_attention(model::ModelConfig& c) {
  model::Mla& mla = c.mla;
  mla.q_rank = std::min<std::int64_t>(mla.q_rank, 32);
  mla.kv_rank = std::min<std::int64_t>(mla.kv_rank, 32);
  mla.nope_dim = std::min<std::int64_t>(mla.nope_dim, 16);
  mla.rope_dim = std::min<std::int64_t>(mla.rope_dim, 8);
  mla.v_dim = std::min<std::int64_t>(mla.v_dim, 16);
  c.head_dim = mla.nope_dim + mla.rope_dim;
}

void shrink_attention(model::ModelConfig& c, const model::ModelConfig& model, std::int64_t tp) {
  const std::int64_t per_kv =
      std::min(model.heads / model.kv_heads, std::max(kHeadsPerKvHead, tp / model.kv_heads));
  const std::int64_t most =
      std::min(model.kv_heads, std::max<std::int64_t>(tp, per_kv == 1 ? 4 : 2));
  c.kv_heads = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
  c.heads = per_kv * c.kv_heads;
  c.head_dim = std::min<std::int64_t>(model.head_dim, c.heads > 8 ? 8 : 16);
  c.hidden = in_ratio(model.hidden, model.heads * model.head_dim, c.heads * c.head_dim, kHidden);
  if (c.hidden < 2 * kGrain) c.hidden = 2 * kGrain;
  if (c.mla.kv_rank > 0) shrink_latent_attention(c);
  // Of this family the heads together are as wide as hidden.
  if (c.family == model::Family::kGpt2) c.head_dim = c.hidden / c.heads;
}

void shrink_experts(model::ModelConfig& c, const model::ModelConfig& model) {
  model::Moe& moe = c.moe;
  moe.experts = std::min(moe.experts, kExperts);
  moe.top_k = std::min<std::int64_t>(moe.top_k, std::max<std::int64_t>(1, moe.experts / 2));
  if (moe.groups > 1) {
    moe.groups = std::gcd(moe.groups, std::max<std::int64_t>(1, moe.experts / 2));
    moe.top_groups = std::min(moe.top_groups, std::max<std::int64_t>(1, moe.groups / 2));
    moe.top_k = std::min(moe.top_k, moe.experts / moe.groups * moe.top_groups);
  }
  moe.dense_layers = std::min(moe.dense_layers, c.layers - 1);
  const auto width = [&](std::int64_t& size) {
    if (size > 0) size = in_ratio(size, model.hidden, c.hidden, kFfn);
  };
  width(moe.expert_ffn);
  width(moe.shared_ffn);
}

bool is_small(const model::ModelConfig& c) {
  const auto fits = [](std::int64_t size, std::int64_t limit) { return size <= limit; };
  return fits(c.hidden, kHidden) && fits(c.heads * c.head_dim, 2 * kHidden) && fits(c.ffn, kFfn) &&
         fits(c.moe.experts, kExperts) && fits(c.moe.expert_ffn, kFfn) &&
         fits(c.moe.shared_ffn, kFfn);
}

}  // namespace

model::ModelConfig shrink(const model::ModelConfig& model, std::int64_t tp) {
  model::ModelConfig c = model;
  c.layers = std::min(model.layers, kLayers);
  c.moe.dense_layers = std::min(model.moe.dense_layers, c.layers);
  if (!is_small(model)) {
    shrink_attention(c, model, tp);
    if (model.ffn > 0) c.ffn = in_ratio(model.ffn, model.hidden, c.hidden, kFfn);
    if (model.moe.experts > 0) shrink_experts(c, model);
  }
  // A ragged vocabulary stays ragged: that is where a head goes wrong.
  if (model.vocab > kVocab) c.vocab = 256 + model.vocab % 128;
  c.max_positions = std::min(model.max_positions, kPositions);
  c.window = std::min(model.window, kWindow);
  if (c != model && !c.name.empty()) c.name += "-small";
  return c;
}

}  // namespace lockstep::spec
