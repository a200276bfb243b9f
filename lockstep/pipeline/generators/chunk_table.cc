#include "lockstep/pipeline/generators/chunk_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {

Result<ChunkTable> ChunkTable::create(const Shape& shape, int group) {
  LS_TRY(check_shape(shape));
  if (group < 1)
    return Error{Code::kOutOfRange, join_parts("group = ", group, " is less than 1"),
                 join_parts("give at least ", shape.coords, ", the pipeline ranks")};
  return ChunkTable(shape, std::min(group, shape.microbatches));
}

ChunkTable::ChunkTable(const Shape& shape, int group) : shape_(shape), group_(group) {
  for (int first = 0; first < shape.microbatches; first += group)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int mb = first; mb < std::min(first + group, shape.microbatches); ++mb)
        turns_.push_back({chunk, mb});
}

Pass ChunkTable::forward(int r, int turn) const {
  const Turn& at = turns_[turn];
  return {PassKind::kForward, {at.chunk * shape_.coords + r}, {at.microbatch}};
}

Pass ChunkTable::backward(PassKind kind, int r, int turn) const {
  const Turn& at = turns_[turn];
  return {kind, {(shape_.chunks - 1 - at.chunk) * shape_.coords + r}, {at.microbatch}};
}

Result<Schedule> ChunkTable::schedule(std::string_view name, Timetable timetable) const {
  Result<Schedule> made = Schedule::create(shape_, Placement::kLoop, std::move(timetable));
  if (!made.ok()) return circle(name, made.error());
  return made;
}

Error ChunkTable::circle(std::string_view name, const Error& found) const {
  const int p = shape_.coords, m = shape_.microbatches, rest = m % group_;
  const bool is_rest = group_ >= p;
  LS_CHECK(group_ < m && (!is_rest || (rest > 0 && rest < p)), name, ": ", found.message);
  const std::string cause =
      is_rest ? join_parts("the last group has ", rest) : join_parts("a group has ", group_);
  const std::string remedy =
      is_rest ? join_parts(m - rest, " or ", m - rest + p, " microbatches, or one group of ", m)
              : join_parts("group = ", std::min(p, m), " or ", m);
  return {Code::kOutOfRange,
          join_parts("schedule `", name, "` cannot take ", m, " microbatches in groups of ", group_,
                     " through ", shape_.chunks, " virtual stages on ", p, " pipeline ranks: ",
                     cause, ", fewer than pipeline ranks, and ", found.message),
          join_parts("give every group at least ", p, " microbatches: ", remedy)};
}

}  // namespace lockstep::pipeline
