// Attention of queries over the keys of a context group, out of that over a rank's own.
#pragma once

#include "lockstep/parts/builder.h"

namespace lockstep::parts {

// Replaces forward parts of attention, or gradients, by the parts of sizes.context. Ring: keys of
// one rank after the other, each exchanged while attention over those before computes; gradients of
// keys are sent back to their owner, which adds them in the order of distances. Gather: all keys at
// once.
// What forward parts make besides the output becomes never_kept. REQUIRES: sizes.cp > 1.
void share_context(Written& list, Parts& parts, const Sizes& sizes);

}  // namespace lockstep::parts
