#include "lockstep/spec/train_rules.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::spec {

std::vector<Contradiction> against_evaluation(std::int64_t samples, std::int64_t dp,
                                              const Batch& batch) {
  const std::int64_t unit = dp * batch.microbatch;
  if (samples % unit == 0) return {};
  return {{{Code::kDoesNotDivide,
            join_parts("eval_samples = ", samples, " is not a multiple of dp x microbatch = ", dp,
                       " x ", batch.microbatch, " = ", unit),
            "the nearest eval_samples: " + nearest_multiples(samples, unit)},
           {{{"train.eval_samples"}, join_parts(samples, " sequences")},
            {{"layout.dp", "batch.microbatch", "cluster.name"}, join_parts(unit, " at a time")}}}};
}

std::vector<Contradiction> against_noise_scale(std::int64_t steps, const model::ModelConfig& model,
                                               const Batch& batch) {
  std::vector<Contradiction> found;
  if (steps == 0) return found;
  const Side asked = {{"train.noise_scale"}, "compares the first microbatch with the batch"};
  const bool ramps = !batch.ramp.is_none();
  const std::int64_t least = ramps ? batch.ramp.start : batch.global_batch;
  const char* key = ramps ? "ramp_start" : "global_batch";
  if (least == batch.microbatch)
    found.push_back(
        {{Code::kConflict,
          join_parts("noise_scale = ", steps, " with ", key, " = ", least,
                     ": a batch that is one microbatch of ", batch.microbatch,
                     " has nothing to compare it with"),
          join_parts("the nearest ", key, ": ", 2 * batch.microbatch,
                     batch.microbatch > 1 ? "; or a smaller microbatch; or noise_scale = 0"
                                          : "; or noise_scale = 0")},
         {asked,
          {{join_parts("batch.", key)},
           join_parts(least, least == 1 ? " sequence" : " sequences")}}});
  if (model.tied)
    found.push_back(
        {{Code::kNotRunYet,
          join_parts("noise_scale = ", steps,
                     " with tied = true: a weight that embedding and head share gets its gradient "
                     "in two parts, and the first microbatch's are not added up yet"),
          "set noise_scale = 0, or tied = false"},
         {asked, {{"model.tied", "model.name"}, "the head shares the embedding's weight"}}});
  return found;
}

std::vector<Contradiction> against_expert_parallelism(const mesh::Degrees& degrees,
                                                      std::int64_t noise_scale,
                                                      const model::ModelConfig& model) {
  if (noise_scale == 0 || model.moe.experts == 0) return {};
  std::vector<Contradiction> found;
  const auto refuse = [&](const std::string& setting, const std::string& nearest, Side side) {
    found.push_back(
        {{Code::kNotRunYet,
          join_parts("noise_scale = ", noise_scale, " with ", setting, " cannot be run yet"),
          "set noise_scale = 0, or " + nearest},
         {{{"train.noise_scale"}, "looks at gradients of all experts"}, std::move(side)}});
  };
  if (degrees.ep > 1)
    refuse(join_parts("ep = ", degrees.ep), "ep = 1",
           {{"layout.ep"}, join_parts(degrees.ep, " ranks share experts")});
  if (degrees.etp != degrees.tp)
    refuse(join_parts("etp = ", degrees.etp, " beside tp = ", degrees.tp),
           join_parts("etp = ", degrees.tp),
           {{"layout.etp"},
            join_parts(degrees.etp, " of ", degrees.tp, " tensor ranks have an expert")});
  return found;
}

std::vector<Contradiction> against_router_losses(double aux_loss_coeff, double z_loss_coeff,
                                                 const model::ModelConfig& model) {
  std::vector<Contradiction> found;
  if (model.moe.experts > 0) return found;
  for (const auto& [key, coeff] :
       {std::pair{"moe_aux_loss_coeff", aux_loss_coeff}, {"moe_z_loss_coeff", z_loss_coeff}})
    if (coeff > 0)
      found.push_back({{Code::kConflict, strf("%s = %g, but the model has no experts", key, coeff),
                        strf("set %s = 0, or choose a mixture of experts", key)},
                       {{{join_parts("train.", key)}, "is of a router"},
                        {{"model.name", "model.moe.experts"}, "has none"}}});
  return found;
}

}  // namespace lockstep::spec
