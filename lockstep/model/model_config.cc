#include "lockstep/model/model_config.h"

#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::model {
namespace {

// Far above any model and far below what 64 bits can count.
constexpr double kMaxParameters = 1e16;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// Within what arithmetic on two sizes can hold.
bool is_size(std::int64_t value) { return value >= 1 && value <= kMaxSize; }

// Gathers what is wrong with one model.
class Findings {
 public:
  explicit Findings(const ModelConfig& config) : name_(config.name) {}

  void add(std::vector<std::string> fields, const std::string& what, std::string help = "") {
    problems_.push_back(
        {{Code::kBadModel, (name_.empty() ? "the model" : "model `" + name_ + "`") + ": " + what,
          std::move(help)},
         std::move(fields)});
  }
  void require_size(const char* field, std::int64_t value) {
    if (!is_size(value))
      add({field}, join_parts(field, " is ", with_commas(value)),
          join_parts(field, " must be between 1 and ", with_commas(kMaxSize)));
  }
  void require_zero(const char* field, std::int64_t value, Family family) {
    if (value != 0)
      add({field, "family"},
          join_parts(field, " is ", with_commas(value), ", but family `", to_text(family),
                     "` has none"),
          join_parts("remove ", field, " or choose another family"));
  }
  void refuse(const char* field, std::string_view value, Family family) {
    add({field, "family"},
        join_parts(field, " is ", value, ", which family `", to_text(family), "` does not have"));
  }
  bool empty() const { return problems_.empty(); }
  std::vector<Problem> take() { return std::move(problems_); }

 private:
  std::string name_;
  std::vector<Problem> problems_;
};

std::string divisors_of(std::int64_t number) {
  std::string text;
  for (std::int64_t d = 1; d <= number && d <= 1024; ++d)
    if (number % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return text;
}

void check_sizes(const ModelConfig& c, Findings& found) {
  found.require_size("layers", c.layers);
  found.require_size("hidden", c.hidden);
  found.require_size("heads", c.heads);
  found.require_size("kv_heads", c.kv_heads);
  found.require_size("head_dim", c.head_dim);
  found.require_size("vocab", c.vocab);
  found.require_size("max_positions", c.max_positions);
  if (c.moe.experts == 0 || c.moe.dense_layers > 0) found.require_size("ffn", c.ffn);
  if (c.window < 0) found.add({"window"}, join_parts("window is ", c.window));
  if (c.window_every < 1)
    found.add({"window_every"}, join_parts("window_every is ", c.window_every),
              "1 makes every layer local, 2 every second one");
  else if (c.window_every > 1 && c.family != Family::kGemma2)
    found.refuse("window_every", std::to_string(c.window_every), c.family);
  if (!(c.norm_eps > 0.0))
    found.add({"norm_eps"}, strf("norm_eps is %g", c.norm_eps), "it must be above 0");
  if (c.dropout != 0.0)
    found.add({"dropout"}, strf("dropout is %g", c.dropout),
              "no pass draws random masks, so it must be 0");
  if (!(c.init_std > 0.0))
    found.add({"init_std"}, strf("init_std is %g", c.init_std), "it must be above 0");
}

void check_attention(const ModelConfig& c, Findings& found) {
  if (c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads != 0)
    found.add({"kv_heads", "heads"},
              join_parts("heads is ", c.heads, ", which kv_heads ", c.kv_heads, " does not divide"),
              "kv_heads may be " + divisors_of(c.heads));
  if (c.family == Family::kGpt2) {
    if (is_size(c.heads) && is_size(c.head_dim) && c.heads * c.head_dim != c.hidden)
      found.add({"head_dim", "heads", "hidden"},
                join_parts("heads ", c.heads, " x head_dim ", c.head_dim, " is ",
                           c.heads * c.head_dim, ", but hidden is ", c.hidden),
                "in family `gpt2` the heads together are as wide as hidden");
    if (c.kv_heads != c.heads)
      found.add({"kv_heads", "heads"},
                join_parts("kv_heads is ", c.kv_heads, ", but heads is ", c.heads),
                "family `gpt2` has one key-value head per head");
  } else if (c.mla.kv_rank == 0 && c.head_dim % 2 != 0) {
    found.add({"head_dim"}, join_parts("head_dim is ", c.head_dim),
              "rotary positions turn pairs, so it must be even");
  }
  if (c.family == Family::kGemma2 && c.window == 0)
    found.add({"window"}, "window is 0", "family `gemma2` needs the width of its local layers");
}

void check_rope_scaling(const ModelConfig& c, Findings& found) {
  const RopeScaling& r = c.rope_scaling;
  constexpr const char* kFactor = "rope_scaling.factor";
  constexpr const char* kOriginal = "rope_scaling.original_max_position_embeddings";
  if (!(r.factor >= 1.0) || std::isinf(r.factor))
    return found.add({kFactor}, strf("%s is %g", kFactor, r.factor), "it must be at least 1");
  if (r.factor == 1.0) {
    if (r.original_positions != 0)
      found.add({kFactor, kOriginal},
                join_parts(kFactor, " is 1, that is no scaling, but ", kOriginal, " is ",
                           with_commas(r.original_positions)),
                "remove the table, or set a factor above 1");
    return;
  }
  if (c.family == Family::kGpt2) found.refuse(kFactor, strf("%g", r.factor), c.family);
  found.require_size(kOriginal, r.original_positions);
  if (!(r.low_freq > 0.0) || !(r.high_freq > r.low_freq) || std::isinf(r.high_freq))
    found.add({"rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor"},
              strf("rope_scaling.low_freq_factor is %g and rope_scaling.high_freq_factor is %g",
                   r.low_freq, r.high_freq),
              "both must be above 0, and the second above the first");
}

// A field that a family would silently ignore is refused.
void check_traits(const ModelConfig& c, Findings& found) {
  const bool gpt2 = c.family == Family::kGpt2;
  if (c.qk_norm != QkNorm::kNone && c.family != Family::kLlama && c.family != Family::kMoe)
    found.refuse("qk_norm", to_text(c.qk_norm), c.family);
  if (c.linear_bias && !gpt2) found.refuse("linear_bias", "true", c.family);
  if (c.qkv_bias && c.family == Family::kDeepSeek) found.refuse("qkv_bias", "true", c.family);
  const bool after = c.norm_place == NormPlace::kAfter && c.family == Family::kLlama;
  const bool both = c.norm_place == NormPlace::kBoth && c.family == Family::kGemma2;
  const bool before = c.norm_place == NormPlace::kBefore && c.family != Family::kGemma2;
  if (!after && !both && !before) found.refuse("norm_place", to_text(c.norm_place), c.family);
  if ((c.norm == NormKind::kLayerNorm) != gpt2) found.refuse("norm", to_text(c.norm), c.family);
}

void check_expert_groups(const Moe& moe, Findings& found) {
  if (!is_size(moe.experts)) return;
  if (moe.groups < 1 || moe.experts % moe.groups != 0)
    return found.add({"moe.groups", "moe.experts"},
                     join_parts("moe.groups is ", moe.groups, ", which does not divide ",
                                moe.experts, " experts"),
                     "it may be " + divisors_of(moe.experts));
  if (moe.top_groups < 1 || moe.top_groups > moe.groups)
    return found.add(
        {"moe.top_groups", "moe.groups"},
        join_parts("moe.top_groups is ", moe.top_groups, ", but there are ", moe.groups, " groups"),
        join_parts("moe.top_groups may be 1 to ", moe.groups));
  const std::int64_t within = moe.experts / moe.groups * moe.top_groups;
  if (moe.groups > 1 && moe.top_k > within)
    found.add({"moe.top_k", "moe.top_groups", "moe.groups"},
              join_parts("moe.top_k is ", moe.top_k, ", but ", moe.top_groups, " of ", moe.groups,
                         " groups have ", within, " experts"),
              join_parts("moe.top_k may be 1 to ", within));
}

void check_experts(const ModelConfig& c, Findings& found) {
  const Moe& moe = c.moe;
  if (c.family != Family::kMoe && c.family != Family::kDeepSeek) {
    found.require_zero("moe.experts", moe.experts, c.family);
    found.require_zero("moe.shared_ffn", moe.shared_ffn, c.family);
    if (moe.router_bias) found.refuse("moe.router_bias", "true", c.family);
    if (moe.shared_gate) found.refuse("moe.shared_gate", "true", c.family);
    if (!moe.norm_topk_prob) found.refuse("moe.norm_topk_prob", "false", c.family);
    if (moe.score != RouterScore::kSoftmax) found.refuse("moe.score", to_text(moe.score), c.family);
    if (moe.groups != 1) found.refuse("moe.groups", std::to_string(moe.groups), c.family);
    if (moe.top_groups != 1)
      found.refuse("moe.top_groups", std::to_string(moe.top_groups), c.family);
    if (moe.routed_scale != 1.0)
      found.refuse("moe.routed_scale", strf("%g", moe.routed_scale), c.family);
    return;
  }
  found.require_size("moe.experts", moe.experts);
  found.require_size("moe.top_k", moe.top_k);
  found.require_size("moe.expert_ffn", moe.expert_ffn);
  if (moe.top_k > moe.experts)
    found.add({"moe.top_k", "moe.experts"},
              join_parts("moe.top_k is ", moe.top_k, ", but there are ", moe.experts, " experts"),
              join_parts("moe.top_k may be 1 to ", moe.experts));
  if (moe.shared_ffn < 0 || moe.shared_ffn > kMaxSize)
    found.add({"moe.shared_ffn"}, join_parts("moe.shared_ffn is ", moe.shared_ffn));
  if (moe.shared_gate && moe.shared_ffn == 0)
    found.add({"moe.shared_gate", "moe.shared_ffn"},
              "moe.shared_gate is on, but moe.shared_ffn is 0");
  if (moe.dense_layers < 0 || moe.dense_layers > c.layers)
    found.add({"moe.dense_layers", "layers"}, join_parts("moe.dense_layers is ", moe.dense_layers,
                                                         ", but there are ", c.layers, " layers"));
  if (!(moe.routed_scale > 0.0))
    found.add({"moe.routed_scale"}, strf("moe.routed_scale is %g", moe.routed_scale),
              "it must be above 0");
  check_expert_groups(moe, found);
}

void check_latent_attention(const ModelConfig& c, Findings& found) {
  const Mla& mla = c.mla;
  if (c.family != Family::kDeepSeek) {
    found.require_zero("mla.kv_rank", mla.kv_rank, c.family);
    found.require_zero("mla.q_rank", mla.q_rank, c.family);
    found.require_zero("mla.nope_dim", mla.nope_dim, c.family);
    found.require_zero("mla.rope_dim", mla.rope_dim, c.family);
    found.require_zero("mla.v_dim", mla.v_dim, c.family);
    found.require_zero("mtp_layers", c.mtp_layers, c.family);
    return;
  }
  found.require_size("mla.kv_rank", mla.kv_rank);
  found.require_size("mla.nope_dim", mla.nope_dim);
  found.require_size("mla.rope_dim", mla.rope_dim);
  found.require_size("mla.v_dim", mla.v_dim);
  if (mla.q_rank < 0 || mla.q_rank > kMaxSize)
    found.add({"mla.q_rank"}, join_parts("mla.q_rank is ", mla.q_rank));
  if (mla.rope_dim % 2 != 0)
    found.add({"mla.rope_dim"}, join_parts("mla.rope_dim is ", mla.rope_dim),
              "rotary positions turn pairs, so it must be even");
  if (is_size(mla.nope_dim) && is_size(mla.rope_dim) && c.head_dim != mla.nope_dim + mla.rope_dim)
    found.add({"head_dim", "mla.nope_dim", "mla.rope_dim"},
              join_parts("head_dim is ", c.head_dim, ", but mla.nope_dim ", mla.nope_dim,
                         " + mla.rope_dim ", mla.rope_dim, " is ", mla.nope_dim + mla.rope_dim));
  if (c.kv_heads != c.heads)
    found.add({"kv_heads", "heads"},
              join_parts("kv_heads is ", c.kv_heads, ", but heads is ", c.heads),
              "latent attention has one key-value head per head");
  if (c.mtp_layers < 0 || c.mtp_layers > 16)
    found.add({"mtp_layers"}, join_parts("mtp_layers is ", c.mtp_layers), "it may be 0 to 16");
}

// An upper bound in floating point, so that the exact counts below can never overflow.
double parameter_bound(const ModelConfig& c) {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const double ranks = d(c.mla.q_rank) + d(c.mla.kv_rank) + d(c.mla.rope_dim) + d(c.mla.v_dim);
  const double attention =
      (d(c.hidden) + ranks) * (4.0 * d(c.heads) * (d(c.head_dim) + ranks) + 8.0);
  const double mlp =
      3.0 * d(c.hidden) *
      (d(c.ffn) + d(c.moe.shared_ffn) + d(c.moe.experts) * (d(c.moe.expert_ffn) + 1.0));
  return (d(c.layers) + d(c.mtp_layers)) * (attention + mlp + 16.0 * d(c.hidden)) +
         d(c.hidden) * (2.0 * d(c.vocab) + d(c.max_positions));
}

}  // namespace

ModelConfig usual(Family family) {
  ModelConfig c;
  c.family = family;
  if (family == Family::kGpt2) {
    c.norm = NormKind::kLayerNorm;
    c.qkv_bias = c.linear_bias = c.tied = true;
  } else if (family == Family::kGemma2) {
    c.norm = NormKind::kRmsNormPlusOne;
    c.norm_place = NormPlace::kBoth;
    c.window_every = 2;
    c.tied = c.scaled_embedding = true;
  }
  return c;
}

Activation activation(const ModelConfig& config) {
  if (config.family == Family::kGpt2) return Activation::kGelu;
  return config.family == Family::kGemma2 ? Activation::kGeGlu : Activation::kSwiGlu;
}

Positions positions(const ModelConfig& config) {
  return config.family == Family::kGpt2 ? Positions::kLearned : Positions::kRotary;
}

std::vector<Problem> problems_by_field(const ModelConfig& config) {
  Findings found(config);
  check_sizes(config, found);
  check_attention(config, found);
  check_rope_scaling(config, found);
  check_traits(config, found);
  check_experts(config, found);
  check_latent_attention(config, found);
  if (found.empty() && parameter_bound(config) > kMaxParameters)
    found.add({"layers", "hidden"},
              strf("its sizes multiply to about %.1e parameters", parameter_bound(config)),
              strf("the limit is %.0e", kMaxParameters));
  return found.take();
}

std::vector<Error> problems(const ModelConfig& config) {
  std::vector<Error> errors;
  for (Problem& problem : problems_by_field(config)) errors.push_back(std::move(problem.error));
  return errors;
}

}  // namespace lockstep::model
