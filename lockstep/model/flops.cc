#include "lockstep/model/flops.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::model {

double mean_keys(std::int64_t seq, std::int64_t window, Mask mask) {
  LS_CHECK(seq >= 1, "sequence of ", seq);
  const auto s = static_cast<double>(seq);
  if (mask == Mask::kFull) return s;
  const auto w = static_cast<double>(window == 0 ? seq : std::min(seq, window));
  // The first w queries meet 1, 2, ..., w keys, all later ones w.
  return (w * (w + 1.0) / 2.0 + (s - w) * w) / s;
}

TokenFlops flops_per_token(const Unit& unit, std::int64_t seq, Mask mask) {
  TokenFlops sum;
  for (const Matmul& product : unit.matmuls) {
    const double one = 2.0 * static_cast<double>(product.k) * static_cast<double>(product.n);
    sum.matmul.value += one * static_cast<double>(product.active);
  }
  if (unit.attention) {
    const Attention& a = *unit.attention;
    sum.attention.value +=
        2.0 * static_cast<double>(a.heads * (a.qk_dim + a.v_dim)) * mean_keys(seq, a.window, mask);
  }
  return sum;
}

TokenFlops flops_per_token(const Model& model, std::int64_t seq, Mask mask) {
  std::vector<double> times(model.distinct.size(), 0.0);
  for (const int index : model.order) times[index] += 1.0;
  TokenFlops sum;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const TokenFlops one = flops_per_token(model.distinct[i], seq, mask);
    sum.matmul += one.matmul * times[i];
    sum.attention += one.attention * times[i];
  }
  return sum;
}

}  // namespace lockstep::model
