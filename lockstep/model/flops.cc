#include "lockstep/model/flops.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::model {

double mean_keys(std::int64_t seq, std::int64_t window, Mask mask) {
  LS_CHECK(seq >= 1, "sequence of ", seq);
  const auto s = static_cast<double>(seq);
  return mask == Mask::kFull ? s : static_cast<double>(pairs_before(seq, window)) / s;
}

double attention_imbalance(const Model& model, CpMethod method, std::int64_t cp, std::int64_t seq) {
  if (method == CpMethod::kUlysses) return 1;  // whole sequences of as many heads
  double most = 0, sum = 0;
  for (std::int64_t rank = 0; rank < cp; ++rank) {
    double own = 0;
    for (const int index : model.order) {
      const std::optional<Attention>& a = model.distinct[index].attention;
      if (!a) continue;
      std::int64_t pairs = 0;
      for (const PositionRun& run : position_runs({cp, rank}, seq / cp))
        pairs += pairs_before(run.position + run.count, a->window) -
                 pairs_before(run.position, a->window);
      own += static_cast<double>(pairs * a->heads * (a->qk_dim + a->v_dim));
    }
    most = std::max(most, own);
    sum += own;
  }
  return most * static_cast<double>(cp) / sum;
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
