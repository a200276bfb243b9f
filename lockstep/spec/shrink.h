// A small model of the same structure, for proving layouts on.
#pragma once

#include <cstdint>

#include "lockstep/model/model_config.h"

namespace lockstep::spec {

// At most 4 layers, hidden 64 to 128 in multiples of 32, a vocabulary of at most 512 and at most
// 256 positions. A size that is small enough stays; widths stay only if all of them do, because
// they belong together. Kept as well: the family and every trait, heads per key-value head up to 8,
// how ffn and the heads' width compare to hidden, whether the vocabulary is a round number, tied
// weights, epsilon, rotary base and scaling. legal() finds nothing in it that it did not find in
// `model`, unless a degree is too large for it; `tp` is not, where it is a power of two: there are
// as many key-value heads as that, if `model` has them. Shrinking twice changes nothing more.
model::ModelConfig shrink(const model::ModelConfig& model, std::int64_t tp = 1);

}  // namespace lockstep::spec
