// What a simulation of a priced layout is made of: one microbatch through one layer, through the head, and from one
// pipeline rank to the next. Pure functions of plain values.
#pragma once

#include "lockstep/cost/analytic/price.h"

namespace lockstep::planner {

// Seconds, with the communication that nothing hides in the pass that waits for it.
struct PassTimes {
  double forward = 0, backward = 0;  // of one layer; rows that are made again count as backward
  double again = 0;                  // besides: a block that keeps its input alone
  double head_forward = 0, head_backward = 0;
  double hop = 0;  // one way
  double layer() const { return forward + backward; }
  double head() const { return head_forward + head_backward; }
  // Of a stage with so many layers, of which some are made again.
  double stage(int layers, int recomputed, bool has_head) const {
    return layers * layer() + recomputed * again + (has_head ? head() : 0);
  }
};

// Degrees and layers are whole numbers that prices hold as reals.
inline int count_of(double value) { return static_cast<int>(value); }

PassTimes pass_times(const cost::PriceRequest& request);
// With the exchanges of ZeRO-3 that passes cannot hide.
PassTimes sharded_pass_times(const cost::PriceRequest& request);

}  // namespace lockstep::planner
