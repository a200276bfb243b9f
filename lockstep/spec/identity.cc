#include "lockstep/spec/identity.h"

#include "lockstep/base/units.h"

namespace lockstep::spec {
namespace {

// Of the member at the end of the path.
template <auto... Members>
std::string text_of(const Spec& spec) {
  const auto& value = (spec.*....*Members);
  using Type = std::remove_cvref_t<decltype(value)>;
  if constexpr (std::is_same_v<Type, bool>)
    return value ? "yes" : "no";
  else if constexpr (std::is_floating_point_v<Type>)
    return shortest(value);
  else if constexpr (std::is_integral_v<Type>)
    return std::to_string(value);
  else
    return std::string(to_text(value));
}
template <auto... Members>
constexpr auto kOfBatch = text_of<&Spec::batch, Members...>;
template <auto... Members>
constexpr auto kOfTrain = text_of<&Spec::train, Members...>;
template <auto Member>
constexpr auto kOfRate = text_of<&Spec::train, &Train::lr, Member>;

// A learning rate that does not fall asks for no end: such a run may be made longer.
bool stays(const Spec& spec) { return spec.train.lr.decay == Decay::kConstant; }

// Left out at the value that it had before it could be set.
template <auto Value>
bool is_usual(const Spec& spec) {
  return spec.train.*Value == Train().*Value;
}

bool never_evaluates(const Spec& spec) { return spec.train.eval_interval == 0; }

std::string ramp_text(const Spec& spec) {
  const BatchRamp& ramp = spec.batch.ramp;
  return join_parts("from ", ramp.start, " by ", ramp.increment, " over ", ramp.samples,
                    " samples");
}

constexpr bool kMayChange = true;

constexpr IdentityKey kKeys[] = {
    {"batch.seq", "seq", kOfBatch<&Batch::seq>},
    {"batch.global_batch", "global_batch", kOfBatch<&Batch::global_batch>},
    {"train.dtype", "dtype", kOfTrain<&Train::dtype>},
    {"train.seed", "seed", kOfTrain<&Train::seed>},
    {"model.init_std", "init_std", text_of<&Spec::model, &model::ModelConfig::init_std>},
    {"train.lr", "lr", kOfRate<&LearningRate::peak>, nullptr, kMayChange},
    {"train.warmup", "warmup", kOfRate<&LearningRate::warmup>, nullptr, kMayChange},
    {"train.lr_decay", "decay", kOfRate<&LearningRate::decay>, nullptr, kMayChange},
    {"train.weight_decay", "weight_decay", kOfTrain<&Train::weight_decay>, nullptr, kMayChange},
    {"train.decay_embeddings", "decay_embeddings", kOfTrain<&Train::decay_embeddings>},
    {"train.clip", "clip", kOfTrain<&Train::clip>, nullptr, kMayChange},
    {"train.min_lr", "min_lr", kOfRate<&LearningRate::end>, stays, kMayChange},
    {"train.decay_steps", "decay_steps", kOfRate<&LearningRate::decay_steps>, stays, kMayChange},
    {"train.steps", "steps", kOfTrain<&Train::steps>, stays, kMayChange},
    {"train.beta1", "beta1", kOfTrain<&Train::beta1>, is_usual<&Train::beta1>},
    {"train.beta2", "beta2", kOfTrain<&Train::beta2>, is_usual<&Train::beta2>},
    {"train.eps", "eps", kOfTrain<&Train::eps>, is_usual<&Train::eps>},
    {"train.moe_aux_loss_coeff", "moe_aux_loss_coeff", kOfTrain<&Train::moe_aux_loss_coeff>,
     is_usual<&Train::moe_aux_loss_coeff>},
    {"train.moe_z_loss_coeff", "moe_z_loss_coeff", kOfTrain<&Train::moe_z_loss_coeff>,
     is_usual<&Train::moe_z_loss_coeff>},
    {"train.moe_bias_update_rate", "moe_bias_update_rate", kOfTrain<&Train::moe_bias_update_rate>,
     is_usual<&Train::moe_bias_update_rate>},
    {"batch.ramp_start", "ramp", ramp_text,
     [](const Spec& spec) { return spec.batch.ramp.is_none(); }},
    {"batch.microbatch", "", kOfBatch<&Batch::microbatch>},
    {"train.head_chunk", "", kOfTrain<&Train::head_chunk>},
    {"train.threads", "", kOfTrain<&Train::threads>},
    {"device.kind", "", text_of<&Spec::device>},
    {"train.on_nonfinite", "", kOfTrain<&Train::on_nonfinite>},
    {"train.eval_interval", "", kOfTrain<&Train::eval_interval>},
    {"train.eval_samples", "", kOfTrain<&Train::eval_samples>, never_evaluates},
};

std::string_view last_word(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::span<const IdentityKey> identity_keys() { return kKeys; }

std::vector<std::string> changeable() {
  std::vector<std::string> names;
  for (const IdentityKey& key : kKeys)
    if (key.may_change) names.emplace_back(last_word(key.path));
  return names;
}

const IdentityKey* find_changeable(std::string_view name) {
  for (const IdentityKey& key : kKeys)
    if (key.may_change && (name == key.path || name == last_word(key.path))) return &key;
  return nullptr;
}

Facts identity(const Spec& spec, std::string_view IdentityKey::* name) {
  Facts facts;
  for (const IdentityKey& key : kKeys)
    if (!(key.*name).empty() && !(key.is_idle && key.is_idle(spec)))
      facts.emplace_back(key.*name, key.text(spec));
  return facts;
}

}  // namespace lockstep::spec
