// Derivatives of a forward list, by one rule per kind.
#pragma once

#include "lockstep/parts/builder.h"

namespace lockstep::parts {

// The two halves of a backward pass, each in the order in which a backward pass comes to its
// parts. They read what the forward pass made, whether anybody keeps it or not.
struct Backward {
  Parts input;   // I: from the gradient of the output to that of the input
  Parts weight;  // W: adds to the parameters' gradients; nothing in I reads what it makes
  ValueId d_output = kNoValue;
  ValueId d_input = kNoValue;  // none where the list has no input
};

// New values go to forward.values. REQUIRES: a list that is not lowered, since a rule belongs to
// what a part means, not to how ranks compute it.
Backward differentiate(Written& forward);

}  // namespace lockstep::parts
