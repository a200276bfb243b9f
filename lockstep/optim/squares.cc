#include "lockstep/optim/squares.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"

namespace lockstep::optim {
namespace {

// Eight running sums in f64, whatever the type: a fixed order that a compiler can vectorize.
template <class Element>
LS_INTO_CLONES double sum_in_lanes(const Element* x, std::int64_t n) {
  std::array<double, 8> lanes = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      lanes[lane] += value * value;
    }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

LS_VECTOR_CLONES double sum_of_squares(const float* x, std::int64_t n) {
  return sum_in_lanes(x, n);
}
LS_VECTOR_CLONES double sum_of_squares(const double* x, std::int64_t n) {
  return sum_in_lanes(x, n);
}

// What is counted elsewhere, ascending.
std::vector<model::FlatRange> left_out(const model::FlatLayout& layout, model::TensorPlace place) {
  std::vector<model::FlatRange> ranges;
  if (layout.tied_copy) ranges.push_back(layout.tied);
  if (place.coord > 0) ranges.push_back(layout.replicated);
  if (place.coord % layout.copies != 0)
    ranges.insert(ranges.end(), layout.copied.begin(), layout.copied.end());
  std::ranges::sort(ranges, {}, &model::FlatRange::begin);
  return ranges;
}

// Tiles of the range, or what of them is counted here.
std::vector<model::FlatRange> counted_tiles(model::FlatRange range,
                                            const std::vector<model::FlatRange>& left_out) {
  std::vector<model::FlatRange> tiles;
  for (std::int64_t begin = range.begin; begin < range.end; begin += model::kTile) {
    const model::FlatRange tile = {begin, std::min(begin + model::kTile, range.end)};
    std::int64_t from = tile.begin;
    const auto add_until = [&](std::int64_t end) {
      if (from < end) tiles.push_back({from, end});
    };
    for (const model::FlatRange& hole : left_out) {
      const model::FlatRange part = common(tile, hole);
      if (part.size() == 0) continue;
      add_until(part.begin);
      from = part.end;
    }
    add_until(tile.end);
  }
  return tiles;
}

// `x` is the range's first element.
template <class Element>
void add_tiles(const Element* x, model::FlatRange range,
               const std::vector<model::FlatRange>& left_out, ExactSum& sum) {
  const std::vector<model::FlatRange> tiles = counted_tiles(range, left_out);
  std::vector<double> sums(tiles.size());
  at::parallel_for(0, std::ssize(tiles), 256, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      sums[i] = sum_of_squares(x + (tiles[i].begin - range.begin), tiles[i].size());
  });
  for (const double part : sums) sum.add(part);
}

void add_on_cpu(const at::Tensor& grad, model::FlatRange range,
                const std::vector<model::FlatRange>& left_out, ExactSum& sum) {
  if (grad.scalar_type() == at::kDouble)
    add_tiles(grad.const_data_ptr<double>(), range, left_out, sum);
  else
    add_tiles(grad.const_data_ptr<float>(), range, left_out, sum);
}

// The same as an operator, which an accelerator has a kernel of its own for. What is left out is
// begins and ends of ranges.
using Op = void(at::Tensor& words, const at::Tensor& grad, std::int64_t begin,
                at::IntArrayRef left_out);
void add_op(at::Tensor& words, const at::Tensor& grad, std::int64_t begin,
            at::IntArrayRef left_out) {
  std::vector<model::FlatRange> holes;
  for (std::size_t i = 0; i < left_out.size(); i += 2)
    holes.push_back({left_out[i], left_out[i + 1]});
  ExactSum sum;
  add_on_cpu(grad, {begin, begin + grad.numel()}, holes, sum);
  sum.add_to(words.mutable_data_ptr<std::int64_t>());
}
TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def("add_squares_(Tensor(a!) words, Tensor grad, int begin, int[] left_out) -> ()");
}
TORCH_LIBRARY_IMPL(lockstep, CPU, library) { library.impl("add_squares_", TORCH_FN(add_op)); }

void check_piece(model::FlatRange range, const at::Tensor& grad) {
  LS_CHECK(range.begin % model::kTile == 0 && grad.numel() == range.size() && grad.is_contiguous(),
           "a piece of ", grad.numel(), " gradients at ", range.begin);
}

}  // namespace

void add_squares(const model::FlatLayout& layout, model::FlatRange range, const at::Tensor& grad,
                 ExactSum& sum, model::TensorPlace place) {
  check_piece(range, grad);
  add_on_cpu(grad, range, left_out(layout, place), sum);
}

void add_squares(const model::FlatLayout& layout, model::FlatRange range, const at::Tensor& grad,
                 const at::Tensor& words, model::TensorPlace place) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lockstep::add_squares_", "").typed<Op>();
  check_piece(range, grad);
  std::vector<std::int64_t> holes;
  for (const model::FlatRange& hole : left_out(layout, place)) {
    holes.push_back(hole.begin);
    holes.push_back(hole.end);
  }
  at::Tensor into = words;
  op.call(into, grad, range.begin, holes);
}

}  // namespace lockstep::optim
