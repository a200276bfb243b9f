// Where the values of a pass are in memory, and when that ends. A storage is named by the value
// that it was taken for; others are slices or later contents of it.
#pragma once

#include "lockstep/parts/part.h"

namespace lockstep::parts {

struct Place {
  ValueId storage = kNoValue;
  int slice = -1;  // which of several disjoint pieces; -1: all of it
};
using Places = std::vector<Place>;  // by value

// A list that is ready to be run or read.
struct Pass {
  Parts parts;
  std::size_t repeat_begin = 0, repeat_end = 0;  // the parts that repeat
  std::vector<ValueId> before, after;            // values that are handed in and that stay
  Places places;                                 // of `before` and of all that the parts make
  std::vector<std::vector<ValueId>> ends;        // storages given back behind each part,
  std::vector<ValueId> repeat_ends;              // and behind the last repetition

  ValueId storage(ValueId id) const { return places[static_cast<std::size_t>(id)].storage; }
};

// An output takes an operand's memory where its kind may and nothing reads that memory's content
// later; where it may not, whoever runs it copies first. `from`: places of what is handed in, where
// another pass has decided them.
Pass place(const Values& values, const Sizes& sizes, Parts parts, std::vector<ValueId> before,
           std::vector<ValueId> after, const Places& from = {});

}  // namespace lockstep::parts
