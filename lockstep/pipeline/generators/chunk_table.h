// The order in which interleaved schedules take microbatches through the chunks of a pipeline rank.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Groups of microbatches go through the chunks one after another; the last group may be smaller.
// Backward passes take the chunks from the last to the first.
class ChunkTable {
 public:
  // Refuses unusable shapes and groups smaller than 1. A group larger than the microbatches is cut.
  static Result<ChunkTable> create(const Shape& shape, int group);

  int size() const { return static_cast<int>(turns_.size()); }
  int group() const { return group_; }

  // What pipeline rank r does in turn `turn` of its forward or backward passes.
  Pass forward(int r, int turn) const;
  Pass backward(PassKind kind, int r, int turn) const;

  // The schedule, or why the rule of groups refuses the shape. Narayanan et al., "Efficient
  // large-scale language model training on GPU clusters using Megatron-LM", SC 2021, take multiples
  // of the pipeline ranks. In general a group of fewer microbatches than pipeline ranks may close a
  // circle of waits, unless it is the only one.
  Result<Schedule> schedule(std::string_view name, Timetable timetable) const;

 private:
  struct Turn {
    int chunk = 0;
    int microbatch = 0;
  };

  ChunkTable(const Shape& shape, int group);
  Error circle(std::string_view name, const Error& found) const;

  Shape shape_;
  int group_;
  std::vector<Turn> turns_;
};

}  // namespace lockstep::pipeline
