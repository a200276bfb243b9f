// Memory of a rank of a pipeline by class, as a maximum over moments of the step, not a sum of
// maxima; price_memory() is that of the rank which holds most.
//
// States: ZeRO, Rajbhandari et al. (arXiv 1910.02054), section 5. Activations: tensor by tensor as
// parts/unit_passes.h lists them for a Llama block; with dropout and unfused scores these are the
// formulas of Korthikanti et al. (arXiv 2205.05198), section 4. Moments and their transients:
// SimuMax's measured B200 runs need them, and nothing fitted (docs/accuracy.md).
#pragma once

#include <optional>

#include "lockstep/cost/analytic/price.h"
#include "lockstep/cost/analytic/stage_split.h"

namespace lockstep::cost {

// Bytes per token that a layer which drops this keeps for its backward pass on one rank.
double kept_bytes_per_token(const PriceRequest& request, const model::Drop& drop,
                            bool expert_layer);
// Of the bytes of all rows that one elementwise pass rebuilds, those that request.drop names.
double dropped_share(const PriceRequest& request, bool expert_layer);

// Parameters of one pipeline rank, whole (not divided by tp or ep).
PartParams stage_params(const PriceRequest& request, const StageSplit& split, int stage);

// The vocabulary as Megatron pads it, to a multiple of 128 tp.
double padded_vocab(const PriceRequest& request);

// Bytes on every device of pipeline rank `stage`, 0 to request.pp - 1, at its own worst moment;
// without a split, of split_layers().
Memory stage_memory(const PriceRequest& request, const StageSplit& split, int stage);
Memory stage_memory(const PriceRequest& request, int stage);

// How many blocks of that rank must keep their input alone for it to fit when the rest drop
// what request.drop.rest() says: the fewest, 0 where none must; nothing where all are not enough.
// `request.drop.block` and `.recomputed` are not read.
std::optional<int> least_recomputed(const PriceRequest& request, const StageSplit& split,
                                    int stage);
// The same number on every rank of split_layers(): the most that one needs.
std::optional<int> least_recomputed(const PriceRequest& request);

}  // namespace lockstep::cost
