#include "lockstep/mesh/grid.h"

namespace lockstep::mesh {

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
