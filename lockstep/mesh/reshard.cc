#include "lockstep/mesh/reshard.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace lockstep::mesh {
namespace {

// Where one source piece and one target box meet along one dim.
struct Overlap {
  std::int64_t extent = 0;
  std::int64_t source_begin = 0;  // in the local dim of the owner
  std::int64_t target_begin = 0;  // in the local dim of the target rank
  std::int32_t coord = 0;         // of the owner along the axes that cut the dim
};

std::vector<Overlap> overlaps(const DimSplit& split, const Box& box, std::size_t dim) {
  const std::int64_t begin = box.begin[dim];
  const std::int64_t end = begin + box.extent[dim];
  std::vector<Overlap> found;
  for (std::int64_t index = begin / split.piece; index * split.piece < end; ++index) {
    const std::int64_t piece_begin = index * split.piece;
    const std::int64_t from = std::max(begin, piece_begin);
    const std::int64_t to = std::min(end, piece_begin + split.piece);
    found.push_back({.extent = to - from,
                     .source_begin = split.local_begin_of(index) + from - piece_begin,
                     .target_begin = box.local_begin[dim] + from - begin,
                     .coord = split.owner_of(index)});
  }
  return found;
}

// A rectangle that both sides hold, read row by row. A row is the longest stretch that is
// contiguous on both sides; rows ascend in both local tensors.
class Rows {
 public:
  Rows(std::vector<Overlap> rectangle, std::span<const std::int64_t> source_shape,
       std::span<const std::int64_t> target_shape)
      : rectangle_(std::move(rectangle)),
        source_shape_(source_shape),
        target_shape_(target_shape),
        outer_dims_(rectangle_.size()) {
    bool whole = true;
    while (outer_dims_ > 0 && whole) {
      const std::int64_t extent = rectangle_[--outer_dims_].extent;
      length_ *= extent;
      whole = extent == source_shape_[outer_dims_] && extent == target_shape_[outer_dims_];
    }
    for (std::size_t dim = 0; dim < outer_dims_; ++dim) count_ *= rectangle_[dim].extent;
  }

  std::int64_t count() const { return count_; }

  // Both offsets count from the start of the local tensors.
  Run row(std::int64_t index) const {
    Run run{0, 0, length_};
    std::int64_t source_step = 1;
    std::int64_t target_step = 1;
    for (std::size_t dim = rectangle_.size(); dim-- > 0;) {
      const Overlap& overlap = rectangle_[dim];
      std::int64_t at = 0;
      if (dim < outer_dims_) {
        at = index % overlap.extent;
        index /= overlap.extent;
      }
      run.source += (overlap.source_begin + at) * source_step;
      run.target += (overlap.target_begin + at) * target_step;
      source_step *= source_shape_[dim];
      target_step *= target_shape_[dim];
    }
    return run;
  }

  // The first row that reaches beyond target element `begin`; count() if none does.
  std::int64_t first_beyond(std::int64_t begin) const {
    std::int64_t low = 0;
    std::int64_t high = count_;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (row(middle).target + length_ > begin)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

 private:
  std::vector<Overlap> rectangle_;
  std::span<const std::int64_t> source_shape_;
  std::span<const std::int64_t> target_shape_;
  std::size_t outer_dims_;  // dims that are walked; the others are inside a row
  std::int64_t length_ = 1;
  std::int64_t count_ = 1;
};

class Resharder {
 public:
  Resharder(const Layout& source, const Layout& target, Rank target_rank, Replica replica)
      : source_(source),
        target_(target),
        target_rank_(target_rank),
        replica_(replica),
        shard_(target.shard(target_rank)) {}

  std::vector<Copy> copies() {
    if (shard_.size() > 0)
      for (const Box& box : shard_.boxes) read_box(box);
    std::vector<Copy> copies;
    for (auto& [owner, runs] : runs_) copies.push_back({owner, merged(std::move(runs))});
    return copies;
  }

 private:
  // Walks every combination of source pieces that meet the box.
  void read_box(const Box& box) {
    std::vector<std::vector<Overlap>> by_dim;
    for (std::size_t dim = 0; dim < box.begin.size(); ++dim)
      by_dim.push_back(overlaps(source_.splits()[dim], box, dim));
    std::vector<std::size_t> at(by_dim.size(), 0);
    for (bool more = true; more;) {
      std::vector<Overlap> rectangle;
      for (std::size_t dim = 0; dim < at.size(); ++dim) rectangle.push_back(by_dim[dim][at[dim]]);
      read_rectangle(std::move(rectangle));
      more = false;
      for (std::size_t dim = at.size(); dim-- > 0 && !more;) {
        more = ++at[dim] < by_dim[dim].size();
        if (!more) at[dim] = 0;
      }
    }
  }

  void read_rectangle(std::vector<Overlap> rectangle) {
    Rank place = at_home();
    for (std::size_t dim = 0; dim < rectangle.size(); ++dim)
      place = moved(place, source_.splits()[dim].axes, rectangle[dim].coord);
    const Rows rows(std::move(rectangle), source_.local_shape(), target_.local_shape());
    for (std::int64_t i = rows.first_beyond(shard_.begin); i < rows.count(); ++i) {
      const Run run = rows.row(i);
      if (run.target >= shard_.end) break;
      const std::int64_t before = std::max<std::int64_t>(0, shard_.begin - run.target);
      const std::int64_t end = std::min(run.length, shard_.end - run.target);
      read_run(place, {run.source + before, run.target + before - shard_.begin, end - before});
    }
  }

  // Cuts a run of the source's local tensor where its ranges change owner.
  void read_run(Rank place, Run run) {
    if (!source_.spec().range) {
      runs_of(place, {}, 0).push_back(run);
      return;
    }
    const auto& [axes, unused, offset] = *source_.spec().range;
    const std::int64_t width = source_.range_width();
    while (run.length > 0) {
      const std::int64_t coord = (run.source + offset) / width;
      const std::int64_t begin = std::max<std::int64_t>(0, coord * width - offset);
      const std::int64_t end = (coord + 1) * width - offset;
      const std::int64_t length = std::min(run.length, end - run.source);
      runs_of(place, axes, static_cast<std::int32_t>(coord))
          .push_back({run.source - begin, run.target, length});
      run = {run.source + length, run.target + length, run.length - length};
    }
  }

  // The runs read from the owner with these coordinates. Remembers the last answer, because rows
  // come by the thousand from one owner.
  std::vector<Run>& runs_of(Rank place, AxisSet range_axes, std::int32_t range_coord) {
    const std::pair key(place, range_coord);
    if (!last_ || last_key_ != key) {
      last_key_ = key;
      last_ = &runs_[chosen(moved(place, range_axes, range_coord))];
    }
    return *last_;
  }

  // A rank of the source mesh that has coordinate 0 everywhere but on its pipeline coordinate.
  Rank at_home() const {
    const std::optional<Coord> pp = source_.spec().pp;
    return moved(Rank{0}, Axis::kPipeline, pp ? pp->value : 0);
  }

  Rank moved(Rank place, AxisSet axes, std::int32_t coord) const {
    return source_.mesh().group(place, axes).rank_at(coord);
  }

  // One of the ranks that hold the same shard as `place`, which has coordinate 0 on replica axes.
  Rank chosen(Rank place) const {
    if (replica_ == Replica::kFirst) return place;
    const Group replicas = source_.mesh().group(place, source_.replica_axes());
    if (replicas.contains(target_rank_)) return target_rank_;
    return replicas.rank_at(target_rank_.value % replicas.size());
  }

  static std::vector<Run> merged(std::vector<Run> runs) {
    std::ranges::sort(runs, {}, &Run::target);
    std::vector<Run> out;
    for (const Run& run : runs) {
      if (!out.empty() && out.back().target + out.back().length == run.target &&
          out.back().source + out.back().length == run.source)
        out.back().length += run.length;
      else
        out.push_back(run);
    }
    return out;
  }

  const Layout& source_;
  const Layout& target_;
  Rank target_rank_;
  Replica replica_;
  Shard shard_;
  std::map<Rank, std::vector<Run>> runs_;
  std::pair<Rank, std::int32_t> last_key_;
  std::vector<Run>* last_ = nullptr;
};

}  // namespace

Result<std::vector<Copy>> reshard(const Layout& source, const Layout& target, Rank target_rank,
                                  Replica replica) {
  if (source.spec().shape != target.spec().shape)
    return Error{Code::kBadSharding,
                 "a tensor of shape " + shape_text(source.spec().shape) +
                     " can not be resharded to shape " + shape_text(target.spec().shape),
                 "both layouts must describe the same logical tensor"};
  return Resharder(source, target, target_rank, replica).copies();
}

}  // namespace lockstep::mesh
