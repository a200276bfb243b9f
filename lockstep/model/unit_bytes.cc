#include "lockstep/model/unit_bytes.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/units.h"
#include "lockstep/model/unit_dims.h"

namespace lockstep::model {
namespace {

std::vector<UnitTensor> block_stash(const UnitDims& d, const Drop& drop) {
  const std::int64_t path = d.path * d.h * d.s;
  const std::int64_t mean = d.layer_norm ? d.path * d.wide : 0;
  std::vector<UnitTensor> all = {
      {"input", path},
      {"input_mean", mean},
      {"input_rstd", d.path * d.wide},
      {"attn_normed", path, true},
      {"qkv", d.tokens * (d.q + 2 * d.k) * d.s},
      {"attn_out", d.tokens * d.q * d.s},
      {"attn_lse", d.tokens * d.heads * d.wide},
      {"middle", path},
      {"middle_mean", mean},
      {"middle_rstd", d.path * d.wide},
      {"mlp_normed", path, true},
      {"gate_up", d.tokens * d.g * d.s},
      {"product", d.tokens * d.f * d.s, true},
  };
  std::erase_if(all, [&](const UnitTensor& tensor) {
    return tensor.bytes == 0 || std::ranges::any_of(kDropRows, [&](const DropRow& row) {
             return drop.*row.is_dropped && tensor.name == row.tensor;
           });
  });
  return all;
}

std::vector<UnitTensor> wgrad_inputs(const UnitDims& d) {
  const std::int64_t path = d.path * d.h * d.s;
  const std::int64_t row_bias = d.linear_bias ? d.h * d.wide : 0;
  const std::int64_t norm_bias = d.layer_norm ? d.h * d.wide : 0;
  const std::int64_t head_gain = d.head_norms ? d.head_dim * d.wide : 0;
  std::vector<UnitTensor> all = {
      {"attn_normed", path},
      {"d_qkv", d.tokens * (d.q + 2 * d.k) * d.s},
      {"attn_out", d.tokens * d.q * d.s},
      {"d_middle", path},
      {"mlp_normed", path},
      {"d_gate_up", d.tokens * d.g * d.s},
      {"product", d.tokens * d.f * d.s},
      {"d_out", path},
      {"d_attn_norm", d.h * d.wide},
      {"d_attn_norm_bias", norm_bias},
      {"d_mlp_norm", d.h * d.wide},
      {"d_mlp_norm_bias", norm_bias},
      {"d_q_norm", head_gain},
      {"d_k_norm", head_gain},
      {"d_qkv_bias", d.qkv_bias ? (d.q + 2 * d.k) * d.wide : 0},
      {"d_attn_out_bias", row_bias},
      {"d_gate_up_bias", d.linear_bias ? d.g * d.wide : 0},
      {"d_down_bias", row_bias},
  };
  std::erase_if(all, [](const UnitTensor& tensor) { return tensor.bytes == 0; });
  return all;
}

}  // namespace

std::int64_t total(const std::vector<UnitTensor>& tensors) {
  std::int64_t sum = 0;
  for (const UnitTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

std::vector<UnsupportedFeature> unsupported(const ModelConfig& c, std::int64_t seq) {
  std::vector<UnsupportedFeature> found;
  const auto needs = [&](bool holds, const char* field, std::string value, std::string nearest) {
    if (!holds) found.push_back({field, std::move(value), std::move(nearest)});
  };
  if (c.family != Family::kLlama && c.family != Family::kGpt2)
    return {{"family", std::string(to_text(c.family)), "family = llama, as in llama3-8b"}};
  needs(c.norm == NormKind::kRmsNorm || c.norm == NormKind::kLayerNorm, "norm",
        std::string(to_text(c.norm)), "norm = rmsnorm");
  needs(c.norm_place == NormPlace::kBefore, "norm_place", std::string(to_text(c.norm_place)),
        "norm_place = before");
  needs(c.qk_norm != QkNorm::kWide, "qk_norm", std::string(to_text(c.qk_norm)),
        "qk_norm = per-head or none");
  needs(c.window == 0 || c.window >= seq, "window",
        join_parts(c.window, " (below seq = ", seq, ")"),
        join_parts("seq = ", c.window, ", or window = 0"));
  needs(c.attention_softcap == 0, "attention_softcap", strf("%g", c.attention_softcap),
        "attention_softcap = 0");
  needs(c.logit_softcap == 0, "logit_softcap", strf("%g", c.logit_softcap), "logit_softcap = 0");
  needs(c.query_scale_dim == 0, "query_scale_dim", strf("%g", c.query_scale_dim),
        "query_scale_dim = 0");
  needs(!c.scaled_embedding, "scaled_embedding", "true", "scaled_embedding = false");
  return found;
}

Result<void> check_unit_bytes(const ModelConfig& c, std::int64_t seq) {
  const std::vector<UnsupportedFeature> found = unsupported(c, seq);
  if (found.empty()) return {};
  const UnsupportedFeature& first = found.front();
  return Error{Code::kBadModel,
               join_parts("model `", c.name, "`: ", first.field, " is ", first.value,
                          ", which has no table of activations"),
               "the nearest: " + first.nearest};
}

std::int64_t boundary_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  const UnitDims d(config, sizes);
  return d.path * d.h * d.s;
}

std::vector<UnitTensor> stash_tensors(const ModelConfig& config, const Unit& unit,
                                      const UnitSizes& sizes) {
  LS_CHECK(check_unit_bytes(config, sizes.seq).ok(), "no tables for ", config.name);
  switch (unit.kind) {
    case UnitKind::kBlock:
      return block_stash(UnitDims(config, sizes), sizes.drop);
    case UnitKind::kHead:
      return {{"input", boundary_bytes(config, sizes)}};
    default:
      return {};
  }
}

std::vector<UnitTensor> work_tensors(const ModelConfig& config, const Unit& unit,
                                     const UnitSizes& sizes) {
  LS_CHECK(check_unit_bytes(config, sizes.seq).ok(), "no tables for ", config.name);
  switch (unit.kind) {
    case UnitKind::kBlock:
      return wgrad_inputs(UnitDims(config, sizes));
    case UnitKind::kEmbed:
      return {{"d_out", boundary_bytes(config, sizes)}};
    default:
      return {};  // the head's weights get their gradients together with its input
  }
}

std::int64_t rope_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  if (positions(config) != Positions::kRotary) return 0;
  return 2 * sizes.seq * (config.head_dim / 2) * sizes.wide();
}

}  // namespace lockstep::model
