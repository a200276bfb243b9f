#include "lockstep/model/unit_bytes.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/exact_sum.h"
#include "lockstep/base/units.h"

namespace lockstep::model {
std::vector<UnsupportedFeature> unsupported(const ModelConfig& c) {
  std::vector<UnsupportedFeature> found;
  const auto needs = [&](bool holds, const char* field, std::string value, std::string nearest) {
    if (!holds) found.push_back({field, std::move(value), std::move(nearest)});
  };
  if (c.family == Family::kDeepSeek)
    return {{"family", std::string(to_text(c.family)), "family = llama, as in llama3-8b"}};
  needs(c.norm != NormKind::kPlain, "norm", std::string(to_text(c.norm)), "norm = rmsnorm");
  return found;
}

Result<void> check_unit_bytes(const ModelConfig& c) {
  const std::vector<UnsupportedFeature> found = unsupported(c);
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

std::int64_t sum_bytes(const UnitSizes& sizes) {
  return sizes.kernels == Kernels::kDevice ? 5 * 8 * ExactSum::kNumWords : 0;
}

std::int64_t rope_bytes(const ModelConfig& config, const UnitSizes& sizes) {
  if (positions(config) != Positions::kRotary) return 0;
  return 2 * sizes.seq * (config.head_dim / 2) * sizes.wide();
}

}  // namespace lockstep::model
