// The smallest model in which every op of a step can go wrong, also on two tensor ranks, for trying
// thousands of faults.
#pragma once

#include "lockstep/spec/spec.h"
#include "tests/train/tiny.h"

namespace lockstep::train {

inline spec::Spec small_spec(bool tied) {
  spec::Spec spec = tiny_spec(tied, DType::kF64);
  spec.model.name = "small";
  spec.model.layers = 2;
  spec.model.hidden = 32;
  spec.model.heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_dim = 8;
  spec.model.ffn = 32;
  spec.model.vocab = 42;
  spec.model.max_positions = 8;
  spec.batch = {8, 16, 1};
  spec.train.clip = 0.1;  // below every norm, so that a wrong norm changes the update
  return spec;
}

// The same of blocks of experts, with the loss and the biases that balance them.
inline spec::Spec small_mixture() {
  spec::Spec spec = small_spec(false);
  spec.model.name = "small-mixture";
  spec.model.family = model::Family::kMoe;
  spec.model.ffn = 0;
  spec.model.moe = {.experts = 8,
                    .top_k = 2,
                    .expert_ffn = 32,
                    .router_bias = true,
                    .score = model::RouterScore::kSigmoid};
  spec.train.moe_aux_loss_coeff = 0.05;
  spec.train.moe_bias_update_rate = 0.01;
  return spec;
}

}  // namespace lockstep::train
