#include "lockstep/model/flat_runs.h"

#include <algorithm>

namespace lockstep::model {
namespace {

// Row-major, whatever dim is cut: `row` elements of the piece lie together in every `whole_row` of
// the parameter, the first `skip` elements into it.
void add_runs(const Param& param, const FlatParam& place, const TensorShard& shard, FlatRange range,
              std::vector<FlatRun>& runs) {
  std::int64_t inner = 1;
  for (std::size_t dim = static_cast<std::size_t>(shard.dim) + 1; dim < param.shape.size(); ++dim)
    inner *= param.shape[dim];
  const std::int64_t row = shard.length * inner, skip = shard.begin * inner;
  const std::int64_t whole_row = param.shape[static_cast<std::size_t>(shard.dim)] * inner;
  const FlatRange part = common(range, {place.offset, place.end()});
  for (std::int64_t at = part.begin; at < part.end;) {
    const std::int64_t within = at - place.offset;
    const std::int64_t length = std::min(row - within % row, part.end - at);
    runs.push_back({place.param, at, within / row * whole_row + skip + within % row, length});
    at += length;
  }
}

}  // namespace

std::vector<FlatRun> flat_runs(const Unit& unit, const FlatLayout& layout, TensorPlace place,
                               FlatRange range) {
  std::vector<FlatRun> runs;
  for (const FlatParam& param : layout.params) {
    const Param& whole = unit.params[static_cast<std::size_t>(param.param)];
    add_runs(whole, param, tensor_shard(whole, place.tp, place.coord), range, runs);
  }
  return runs;
}

}  // namespace lockstep::model
