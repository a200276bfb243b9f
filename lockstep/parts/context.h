// Attention of queries over the keys of a context group, out of that over a rank's own.
#pragma once

#include "lockstep/parts/builder.h"

namespace lockstep::parts {

// Replaces attention in forward.parts and its gradient in `input`, if there is one, by the parts of
// sizes.context. REQUIRES: sizes.cp > 1.
//
// Ring: keys of one rank after the other, each exchanged while attention over those before
// computes; gradients of keys are sent back to their owner, which adds them in the order of
// distances. Gather: all keys at once. Of both the output alone is kept.
// Ulysses: attention sees whole sequences of a share of the heads; what its gradient reads of these
// is kept in place of this rank's own tokens.
void share_context(Written& forward, Parts* input, const Sizes& sizes);

// The last of these (private to parts; ulysses.cc).
void exchange_heads(Written& forward, Parts* input);

}  // namespace lockstep::parts
