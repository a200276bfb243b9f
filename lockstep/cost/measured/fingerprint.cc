#include "lockstep/cost/measured/fingerprint.h"

#include <algorithm>

#include "lockstep/base/units.h"

namespace lockstep::cost {
namespace {

std::string dropped_text(const model::Drop& drop) {
  std::string text;
  for (const model::DropRow& row : model::kDropRows)
    if (drop.*row.is_dropped) text += (text.empty() ? "" : "+") + std::string(row.tensor);
  return text.empty() ? "none" : text;
}

std::string yes_no(bool value) { return value ? "true" : "false"; }

}  // namespace

Fingerprint fingerprint(const model::ModelConfig& config, const model::UnitSizes& sizes) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  Fingerprint print = {{"model.family", std::string(to_text(config.family))},
                       {"model.hidden", number(config.hidden)},
                       {"model.heads", number(config.heads)},
                       {"model.kv_heads", number(config.kv_heads)},
                       {"model.head_dim", number(config.head_dim)},
                       {"model.ffn", number(config.ffn)},
                       {"model.vocab", number(config.vocab)},
                       {"model.max_positions", number(config.max_positions)},
                       {"model.tied", yes_no(config.tied)},
                       {"model.norm", std::string(to_text(config.norm))},
                       {"model.qkv_bias", yes_no(config.qkv_bias)},
                       {"model.linear_bias", yes_no(config.linear_bias)},
                       {"model.qk_norm", std::string(to_text(config.qk_norm))},
                       {"batch.seq", number(sizes.seq * sizes.cp)},
                       {"batch.microbatch", number(sizes.batch)},
                       {"train.dtype", std::string(to_text(sizes.dtype))},
                       {"layout.tp", number(sizes.tp)},
                       {"layout.sp", yes_no(sizes.sequence_parallel)},
                       {"rows recomputed", dropped_text(sizes.drop)}};
  // Left out at the value that all models had before they could have another.
  if (config.moe.experts > 0) {
    print.push_back({"model.moe.experts", number(config.moe.experts)});
    print.push_back({"model.moe.top_k", number(config.moe.top_k)});
    print.push_back({"model.moe.expert_ffn", number(config.moe.expert_ffn)});
    if (sizes.ep > 1) print.push_back({"layout.ep", number(sizes.ep)});
    if (const std::int64_t etp = sizes.expert_ranks(); etp != sizes.tp)
      print.push_back({"layout.etp", number(etp)});
    if (sizes.aux_loss_coeff > 0.0) print.push_back({"train.moe_aux_loss_coeff", "some"});
    if (sizes.z_loss_coeff > 0.0) print.push_back({"train.moe_z_loss_coeff", "some"});
  }
  if (config.norm_place != model::NormPlace::kBefore)
    print.push_back({"model.norm_place", std::string(to_text(config.norm_place))});
  if (config.window > 0 && config.window < sizes.seq * sizes.cp)
    print.push_back({"model.window", number(config.window)});
  if (config.attention_softcap > 0.0)
    print.push_back({"model.attention_softcap", shortest(config.attention_softcap)});
  if (config.logit_softcap > 0.0)
    print.push_back({"model.logit_softcap", shortest(config.logit_softcap)});
  if (sizes.cp > 1) {
    print.push_back({"layout.cp", number(sizes.cp)});
    print.push_back({"layout.cp_comm_type", std::string(to_text(sizes.context))});
  }
  if (sizes.head_chunk > 0) print.push_back({"train.head_chunk", number(sizes.head_chunk)});
  if (sizes.threads > 1) print.push_back({"train.threads", number(sizes.threads)});
  return print;
}

Json to_json(const Fingerprint& print) {
  Json json = Json::object();
  for (const Trait& trait : print) json.set(trait.name, trait.value);
  return json;
}

Fingerprint read_fingerprint(JsonFields fields) {
  Fingerprint print;
  for (const Json::Member& member : fields.json().members())
    print.push_back({member.key, fields.text(member.key)});
  return print;
}

Result<void> check_same(const Fingerprint& measured, const Fingerprint& asked,
                        const std::string& name, const std::string& remedy) {
  const auto value_in = [](const Fingerprint& print, const std::string& trait) {
    const auto found = std::ranges::find(print, trait, &Trait::name);
    return found == print.end() ? "(not set)" : found->value;
  };
  for (const Fingerprint* print : {&asked, &measured})
    for (const Trait& trait : *print) {
      const std::string there = value_in(measured, trait.name), here = value_in(asked, trait.name);
      if (there != here)
        return Error{Code::kConflict,
                     join_parts("`", name, "` was measured with ", trait.name, " = ", there,
                                ", asked for is ", here),
                     remedy};
    }
  return {};
}

}  // namespace lockstep::cost
