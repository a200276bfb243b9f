// The lists that are written: forward passes of embedding and block, one function for all families
// whose traits they read, and the head's two passes, by hand: its loss goes over chunks of rows,
// forward and backward in one, which no derivative would find.
#pragma once

#include "lockstep/parts/builder.h"

namespace lockstep::parts {

// REQUIRES of all: model::check_unit_bytes(config).ok().
Written embed_list(const model::ModelConfig& config);
// `has_experts`: in place of the MLP, as most blocks of a mixture.
Written block_list(const model::ModelConfig& config, const Sizes& sizes, bool has_experts);

// The part of a block that experts are (experts.cc): `x`, rows of P -> what they add to them.
ValueId mixture(ValueId x, const model::ModelConfig& config, const Sizes& sizes, Builder& b,
                Written& list);

// `grad`: the loss and all gradients, else the loss alone, without an output. The loss over a
// vocabulary that tensor ranks share is another algorithm than that of one. `values`: goes on from
// these.
Written head_list(const model::ModelConfig& config, const Sizes& sizes, bool grad, Values values);

// The head's logits of every row, for who draws tokens from them.
Written logits_list(const model::ModelConfig& config, const Sizes& sizes);

}  // namespace lockstep::parts
