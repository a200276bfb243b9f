// Where the values of a pass are in memory, and when that ends. A storage is named by the value
// that it was taken for; others are slices or later contents of it.
#pragma once

#include <algorithm>

#include "lockstep/parts/part.h"

namespace lockstep::parts {

struct Place {
  ValueId storage = kNoValue;
  int slice = -1;           // which of several disjoint pieces of its columns; -1: all of it
  std::int64_t column = 0;  // the first of the piece
};
using Places = std::vector<Place>;  // by value

// Whether they share memory.
inline bool overlap(const Place& a, const Place& b) {
  return a.storage == b.storage && (a.slice < 0 || b.slice < 0 || a.slice == b.slice);
}

// A list that is ready to be run or read.
struct Pass {
  Parts parts;
  std::size_t repeat_begin = 0, repeat_end = 0;  // the parts that repeat
  std::vector<ValueId> before, after;            // values that are handed in and that stay
  // Of these, what comes from another unit and what is for one; none: kNoValue.
  ValueId given = kNoValue, result = kNoValue;
  Places places;                           // of `before` and of all that the parts make
  std::vector<std::vector<ValueId>> ends;  // storages given back behind each part,
  std::vector<ValueId> repeat_ends;        // and behind the last repetition

  ValueId storage(ValueId id) const { return places[static_cast<std::size_t>(id)].storage; }
};

// Calls fn(index of a part, first row of the chunk) in the order in which parts run, with
// sizes[Dim::kC] bound, and after_repeat() behind the last chunk.
template <class Fn, class After>
void for_each_part(const Pass& pass, Sizes& sizes, Fn fn, After after_repeat) {
  const auto run = [&](std::size_t begin, std::size_t end, std::int64_t row) {
    for (std::size_t i = begin; i < end; ++i) fn(i, row);
  };
  const std::int64_t chunk = sizes[Dim::kC], rows = sizes[Dim::kT];
  run(0, pass.repeat_begin, 0);
  if (pass.repeat_end > pass.repeat_begin) {
    for (std::int64_t row = 0; row < rows; row += chunk) {
      sizes[Dim::kC] = std::min(chunk, rows - row);
      run(pass.repeat_begin, pass.repeat_end, row);
    }
    after_repeat();
  }
  run(pass.repeat_end, pass.parts.size(), 0);
}

// An output takes an operand's memory where its kind may and nothing reads that memory's content
// later; where it may not, whoever runs it copies first. `from`: places of what is handed in, where
// another pass has decided them.
Pass place(const Values& values, const Sizes& sizes, Parts parts, std::vector<ValueId> before,
           std::vector<ValueId> after, const Places& from = {});

}  // namespace lockstep::parts
