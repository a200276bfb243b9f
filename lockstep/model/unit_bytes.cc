#include "lockstep/model/unit_bytes.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/units.h"

namespace lockstep::model {
std::vector<UnsupportedFeature> unsupported(const ModelConfig& c, std::int64_t seq) {
  std::vector<UnsupportedFeature> found;
  const auto needs = [&](bool holds, const char* field, std::string value, std::string nearest) {
    if (!holds) found.push_back({field, std::move(value), std::move(nearest)});
  };
  if (c.family != Family::kLlama && c.family != Family::kGpt2)
    return {{"family", std::string(to_text(c.family)), "family = llama, as in llama3-8b"}};
  needs(c.norm == NormKind::kRmsNorm || c.norm == NormKind::kLayerNorm, "norm",
        std::string(to_text(c.norm)), "norm = rmsnorm");
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
  const std::int64_t shares = sizes.sequence_parallel ? sizes.tp : 1;
  return sizes.tokens() / shares * config.hidden * sizes.width();
}

std::int64_t rope_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  if (positions(config) != Positions::kRotary) return 0;
  return 2 * sizes.seq * (config.head_dim / 2) * sizes.wide();
}

}  // namespace lockstep::model
