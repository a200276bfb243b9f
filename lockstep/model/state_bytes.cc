#include "lockstep/model/state_bytes.h"

#include "lockstep/base/check.h"

namespace lockstep::model {

StateWidths adam_widths(DType compute, DType grads) {
  const double moment = compute == DType::kF64 ? 8.0 : 4.0;
  const auto working = static_cast<double>(size_of(compute));
  const double master = working < moment ? moment : 0.0;
  return {working, static_cast<double>(size_of(grads)), master + 2.0 * moment};
}

StateShare state_share(const StateWidths& widths, int zero, std::int64_t group) {
  LS_CHECK(zero >= 0 && zero <= 3, "ZeRO stage ", zero);
  LS_CHECK(group >= 1, "group of ", group);
  const auto n = static_cast<double>(group);
  return {zero >= 3 ? widths.weights / n : widths.weights,
          zero >= 2 ? widths.grads / n : widths.grads,
          zero >= 1 ? widths.optimizer / n : widths.optimizer};
}

}  // namespace lockstep::model
