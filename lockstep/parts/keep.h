// What a forward pass keeps and what the two halves of its backward pass make again. There are two
// borders, F|I and I|W. What crosses the first is the stash, what crosses the second the work of W;
// a policy is a set of values that do not cross the first and are made again behind it by the parts
// of F that made them. Rows that were gathered cross no border, so that whoever reads them behind
// one gathers again.
#pragma once

#include "lockstep/parts/differentiate.h"

namespace lockstep::parts {

struct Policy {
  std::vector<ValueId> dropped;  // at F|I, besides what the list itself never keeps
  bool weight_follows = false;   // W at once: rows that I gathered stay for it
};

struct Kept {
  Parts recompute;  // R: the parts of F that the stash needs
  Parts input;      // I, W: with what they make again
  Parts weight;
  std::vector<ValueId> stash;  // in the order in which they were made
  std::vector<ValueId> work;
};

// Those parts that make these values.
Parts makers_of(const std::vector<ValueId>& wanted, const Parts& parts);

// REQUIRES: lists that are lowered.
Kept keep(Written& forward, const Backward& backward, const Policy& policy);

}  // namespace lockstep::parts
