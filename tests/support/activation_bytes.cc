#include "tests/support/activation_bytes.h"

#include "lockstep/base/check.h"

namespace lockstep::model {

double gpt_block_bytes(const BlockShape& shape, std::int64_t tp, bool sequence_parallel,
                       Recompute recompute) {
  LS_CHECK(tp >= 1, "tensor degree ", tp);
  const auto t = static_cast<double>(tp);
  const auto s = static_cast<double>(shape.seq);
  const auto h = static_cast<double>(shape.hidden);
  const auto a = static_cast<double>(shape.heads);
  const double sbh = s * static_cast<double>(shape.batch) * h;
  if (recompute == Recompute::kBlock) return 2.0 * sbh / (sequence_parallel ? t : 1.0);
  const double scores = recompute == Recompute::kNone ? 5.0 * a * s / h : 0.0;
  // 10 of the 34 are the inputs and dropout masks of the residual path.
  const double path = sequence_parallel ? 10.0 / t : 10.0;
  return sbh * (path + (24.0 + scores) / t);
}

}  // namespace lockstep::model
