// Collectives and what runs beside them: the order of a list, and where it waits.
#pragma once

#include "lockstep/parts/part.h"

namespace lockstep::parts {

// B: I and W as one list. A part of W stands as soon as what it reads is there, so that this can
// end. But a product whose gradient of the input goes straight into a collective has that of its
// weight behind the collective, and the rows that this gathers for itself in front of the product:
// so each runs beside communication, as in Megatron-LM
// (core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
Parts as_one_list(const Parts& input, const Parts& weight);

// With a wait for every collective: in front of the first part that reads what it makes, or, where
// nothing is to run beside it, at once. REQUIRES: lists that are lowered.
Parts with_waits(const Parts& parts, bool beside = true);

}  // namespace lockstep::parts
