#include "lockstep/arch/unit_bytes.h"

#include <utility>

#include "lockstep/arch/unit_dims.h"
#include "lockstep/base/units.h"

namespace lockstep::arch {
namespace {

std::vector<UnitTensor> block_stash(const UnitDims& d, const Drop& drop) {
  const std::int64_t path = d.path * d.h * d.s;
  std::vector<UnitTensor> all = {
      {"input", path},
      {"input_rstd", d.path * d.s},
      {"attn_normed", path, true},
      {"qkv", d.tokens * (d.q + 2 * d.k) * d.s},
      {"attn_out", d.tokens * d.q * d.s},
      {"attn_lse", d.tokens * d.heads * d.lse_s},
      {"middle", path},
      {"middle_rstd", d.path * d.s},
      {"mlp_normed", path, true},
      {"gate_up", d.tokens * 2 * d.f * d.s},
      {"product", d.tokens * d.f * d.s, true},
  };
  std::erase_if(all, [&](const UnitTensor& tensor) {
    return (drop.attn_normed && tensor.name == "attn_normed") ||
           (drop.mlp_normed && tensor.name == "mlp_normed") ||
           (drop.product && tensor.name == "product");
  });
  return all;
}

std::vector<UnitTensor> block_work(const UnitDims& d) {
  const std::int64_t path = d.path * d.h * d.s;
  return {
      {"attn_normed", path},
      {"d_qkv", d.tokens * (d.q + 2 * d.k) * d.s},
      {"attn_out", d.tokens * d.q * d.s},
      {"d_middle", path},
      {"mlp_normed", path},
      {"d_gate_up", d.tokens * 2 * d.f * d.s},
      {"product", d.tokens * d.f * d.s},
      {"d_out", path},
      {"d_attn_norm", d.h * d.s},
      {"d_mlp_norm", d.h * d.s},
  };
}

}  // namespace

std::int64_t total(const std::vector<UnitTensor>& tensors) {
  std::int64_t sum = 0;
  for (const UnitTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

Result<void> check_unit_bytes(const ModelConfig& c) {
  const auto refuse = [&](const char* field, const std::string& value) {
    return Error{
        Code::kBadModel,
        "model `" + c.name + "`: " + field + " is " + value + ", which has no table of activations",
        "tables exist for RMS norms before attention and MLP, no biases, full attention"};
  };
  if (c.family != Family::kLlama) return refuse("family", std::string(to_text(c.family)));
  if (c.norm != NormKind::kRmsNorm) return refuse("norm", std::string(to_text(c.norm)));
  if (c.norm_place != NormPlace::kBefore)
    return refuse("norm_place", std::string(to_text(c.norm_place)));
  if (c.qk_norm != QkNorm::kNone) return refuse("qk_norm", std::string(to_text(c.qk_norm)));
  if (c.qkv_bias) return refuse("qkv_bias", "true");
  if (c.window != 0) return refuse("window", std::to_string(c.window));
  if (c.attention_softcap != 0.0)
    return refuse("attention_softcap", strf("%g", c.attention_softcap));
  if (c.logit_softcap != 0.0) return refuse("logit_softcap", strf("%g", c.logit_softcap));
  if (c.query_scale_dim != 0.0) return refuse("query_scale_dim", strf("%g", c.query_scale_dim));
  if (c.scaled_embedding) return refuse("scaled_embedding", "true");
  return {};
}

std::int64_t boundary_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  const UnitDims d(config, sizes);
  return d.path * d.h * d.s;
}

std::vector<UnitTensor> stash_tensors(const ModelConfig& config, const Unit& unit,
                                      const UnitSizes& sizes) {
  LS_CHECK(check_unit_bytes(config).ok(), "no tables for ", config.name);
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
  LS_CHECK(check_unit_bytes(config).ok(), "no tables for ", config.name);
  switch (unit.kind) {
    case UnitKind::kBlock:
      return block_work(UnitDims(config, sizes));
    case UnitKind::kEmbed:
      return {{"d_out", boundary_bytes(config, sizes)}};
    default:
      return {};  // the head's weights get their gradients together with its input
  }
}

std::int64_t rope_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  return 2 * sizes.seq * (config.head_dim / 2) * sizes.width();
}

}  // namespace lockstep::arch
