#include "lockstep/mesh/group.h"

#include "lockstep/base/check.h"

namespace lockstep::mesh {

Group::Group(const Grid& grid, const View& view, AxisSet axes, Rank member)
    : grid_(grid), view_(view), axes_(axes), base_(grid.position(member)) {
  const std::int32_t position = base_;
  for (const Digit& digit : view_) {
    if (!axes_.has(digit.axis)) continue;
    base_ -= digit.of(position) * digit.step;
    size_ *= digit.extent;
  }
}

Rank Group::rank_at(std::int32_t index) const {
  LS_CHECK(0 <= index && index < size_, "member ", index, " of ", name(), ", which has ", size_);
  std::int32_t position = base_;
  for (const Digit& digit : view_) {
    if (!axes_.has(digit.axis)) continue;
    position += index % digit.extent * digit.step;
    index /= digit.extent;
  }
  return grid_.rank(position);
}

std::vector<Rank> Group::ranks() const {
  std::vector<Rank> ranks;
  for (std::int32_t index = 0; index < size_; ++index) ranks.push_back(rank_at(index));
  return ranks;
}

std::optional<std::int32_t> Group::index_of(Rank rank) const {
  if (!grid_.has(rank)) return std::nullopt;
  const std::int32_t position = grid_.position(rank);
  std::int32_t base = position;
  std::int32_t index = 0;
  std::int32_t faster = 1;  // members per step of the digit at hand
  for (const Digit& digit : view_) {
    if (!axes_.has(digit.axis)) continue;
    const std::int32_t coord = digit.of(position);
    base -= coord * digit.step;
    index += coord * faster;
    faster *= digit.extent;
  }
  if (base != base_) return std::nullopt;
  return index;
}

std::string Group::name() const {
  std::string shared;
  const auto append = [&shared](std::string_view axis, std::int32_t coord) {
    shared += shared.empty() ? '@' : '.';
    shared.append(axis).append(std::to_string(coord));
  };
  for (const Digit& digit : view_)
    if (digit.extent > 1 && !axes_.has(digit.axis)) append(to_text(digit.axis), digit.of(base_));
  return to_text(axes_) + shared;
}

Grid::Grid(const View& dense, const Order& order) : of_position_(dense) {
  std::int32_t step = 1;
  for (Axis axis : order.axes()) {
    for (std::size_t i = 0; i < dense.size(); ++i) {
      if (dense[i].axis != axis) continue;
      rank_step_[i] = step;
      step *= dense[i].extent;
    }
  }
  world_ = step;
}

std::int32_t Grid::position(Rank rank) const {
  std::int32_t position = 0;
  for (std::size_t i = 0; i < of_position_.size(); ++i)
    position += rank.value / rank_step_[i] % of_position_[i].extent * of_position_[i].step;
  return position;
}

Rank Grid::rank(std::int32_t position) const {
  std::int32_t rank = 0;
  for (std::size_t i = 0; i < of_position_.size(); ++i)
    rank += of_position_[i].of(position) * rank_step_[i];
  return Rank{rank};
}

}  // namespace lockstep::mesh
