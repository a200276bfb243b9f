#include "lockstep/checkpoint/identity.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kMostShown = 5;

std::string number(double value) { return strf("%.17g", value); }
std::string number(std::int64_t value) { return std::to_string(value); }
std::string yes_no(bool value) { return value ? "yes" : "no"; }

const std::string& value_in(const Facts& facts, const std::string& key) {
  static const std::string kAbsent = "(absent)";
  const auto found = std::ranges::find(facts, key, &std::pair<std::string, std::string>::first);
  return found == facts.end() ? kAbsent : found->second;
}

}  // namespace

Facts model_facts(const arch::ModelConfig& config) {
  Facts facts = {{"family", std::string(to_text(config.family))},
                 {"layers", number(config.layers)},
                 {"hidden", number(config.hidden)},
                 {"heads", number(config.heads)},
                 {"kv_heads", number(config.kv_heads)},
                 {"head_dim", number(config.head_dim)},
                 {"ffn", number(config.ffn)},
                 {"vocab", number(config.vocab)},
                 {"max_positions", number(config.max_positions)},
                 {"tied", yes_no(config.tied)},
                 {"norm", std::string(to_text(config.norm))},
                 {"norm_place", std::string(to_text(config.norm_place))},
                 {"norm_eps", number(config.norm_eps)},
                 {"qkv_bias", yes_no(config.qkv_bias)},
                 {"linear_bias", yes_no(config.linear_bias)},
                 {"qk_norm", std::string(to_text(config.qk_norm))}};
  const auto add = [&](const char* key, std::string value) {
    facts.emplace_back(key, std::move(value));
  };
  if (arch::positions(config) == arch::Positions::kRotary)
    add("rope_theta", number(config.rope_theta));
  if (const arch::RopeScaling& scaling = config.rope_scaling; scaling.factor != 1) {
    add("rope_factor", number(scaling.factor));
    add("rope_low_freq", number(scaling.low_freq));
    add("rope_high_freq", number(scaling.high_freq));
    add("rope_original_positions", number(scaling.original_positions));
  }
  if (config.window != 0)
    add("window", number(config.window) + " every " + number(config.window_every));
  if (config.attention_softcap != 0) add("attention_softcap", number(config.attention_softcap));
  if (config.logit_softcap != 0) add("logit_softcap", number(config.logit_softcap));
  if (config.query_scale_dim != 0) add("query_scale_dim", number(config.query_scale_dim));
  if (config.scaled_embedding) add("scaled_embedding", "yes");
  if (const arch::Moe& moe = config.moe; moe.experts > 0)
    add("experts", join_parts(moe.experts, " top ", moe.top_k, " of ", moe.expert_ffn, ", shared ",
                              moe.shared_ffn, moe.shared_gate ? " gated" : "", ", dense layers ",
                              moe.dense_layers, moe.router_bias ? ", router bias" : ""));
  if (const arch::Mla& mla = config.mla; mla.kv_rank > 0)
    add("mla", join_parts(mla.q_rank, " ", mla.kv_rank, " ", mla.nope_dim, " ", mla.rope_dim, " ",
                          mla.v_dim));
  if (config.mtp_layers > 0) add("mtp_layers", number(config.mtp_layers));
  return facts;
}

Result<void> check_same(std::string_view what, const std::string& path, const Facts& there,
                        const Facts& here) {
  if (there == here) return {};
  std::vector<std::string> keys;
  for (const Facts* facts : {&there, &here})
    for (const auto& [key, value] : *facts)
      if (value_in(there, key) != value_in(here, key) && std::ranges::find(keys, key) == keys.end())
        keys.push_back(key);
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kMostShown); ++i)
    text += join_parts(i == 0 ? "" : "; ", keys[i], " is ", value_in(there, keys[i]), " there and ",
                       value_in(here, keys[i]), " here");
  if (keys.size() > kMostShown) text += join_parts("; and ", keys.size() - kMostShown, " more");
  return Error{
      Code::kOtherCheckpoint,
      join_parts("`", path, "` is of another ", what, ": ", text, " (digest ",
                 to_hex(digest_of(there)), " there, ", to_hex(digest_of(here)), " here)"),
      join_parts("use the ", what, " that the checkpoint was saved with, or another checkpoint")};
}

}  // namespace lockstep::checkpoint
