// What nn does otherwise than lists would: it holds some values longer, and orders some parts
// differently. Lists follow them as long as nn is what runs; whoever runs the lists deletes this.
#pragma once

#include "lockstep/parts/differentiate.h"

namespace lockstep::parts {

// Of a block, written and differentiated. The operand of a product whose sum is scattered lives
// until that is done, and statistics of heads until attention is.
void follow_nn(Written& forward);

// Heads are turned back together and before their norms, whose statistics end together; W goes in
// the order of the forward pass, products first.
void follow_nn(Backward& backward);

}  // namespace lockstep::parts
