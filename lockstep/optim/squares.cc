#include "lockstep/optim/squares.h"

#include <algorithm>
#include <array>

#include "lockstep/base/check.h"

namespace lockstep::optim {
namespace {

// Eight running sums in f64, whatever the type: a fixed order that a compiler can vectorize.
template <class Element>
double sum_of_squares(const Element* x, std::int64_t n) {
  std::array<double, 8> lanes = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class Element>
void add_tiles(const Element* x, std::int64_t size, std::int64_t skip, ExactSum& sum) {
  for (std::int64_t begin = 0; begin < size; begin += arch::kTile) {
    const std::int64_t from = std::max(begin, skip);
    const std::int64_t end = std::min(begin + arch::kTile, size);
    if (from < end) sum.add(sum_of_squares(x + from, end - from));
  }
}

}  // namespace

void add_squares(const arch::FlatLayout& layout, arch::FlatRange range, const at::Tensor& grad,
                 ExactSum& sum) {
  LS_CHECK(range.begin % arch::kTile == 0 && grad.numel() == range.size() && grad.is_contiguous(),
           "a piece of ", grad.numel(), " gradients at ", range.begin);
  const std::int64_t skip =
      layout.tied_copy ? std::max(layout.tied.end - range.begin, std::int64_t{0}) : 0;
  const at::Tensor host = grad.cpu();  // itself when it is there already
  if (host.scalar_type() == at::kDouble)
    add_tiles(host.const_data_ptr<double>(), range.size(), skip, sum);
  else
    add_tiles(host.const_data_ptr<float>(), range.size(), skip, sum);
}

}  // namespace lockstep::optim
