// From what parts mean to what one rank of a layout does. There are three rewrites: rows are
// gathered and reduced by the collective that the layout needs, or, in a group of one, by none;
// where nothing is to be reduced a residual is added inside the product, rounded once; and
// attention over sequences that context ranks share becomes that of its method (context.h).
#pragma once

#include "lockstep/parts/differentiate.h"

namespace lockstep::parts {

// Tensor ranks that share rows gather and scatter them; others have all rows, need no gather, and
// sum in place. A value that a part no longer makes is, in all lists, the one it would have copied.
// `backward` may be null.
void lower(Written& forward, Backward* backward, const Sizes& sizes);

}  // namespace lockstep::parts
