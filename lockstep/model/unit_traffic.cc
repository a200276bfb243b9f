#include "lockstep/model/unit_traffic.h"

#include "lockstep/model/pass_record.h"

namespace lockstep::model {

std::int64_t sent(const TensorCollective& collective, std::int64_t tp) {
  const std::int64_t halves = collective.op == TensorOp::kAllReduce ? 2 : 1;
  return halves * (collective.bytes / tp) * (tp - 1);
}

std::int64_t sent(const std::vector<TensorCollective>& collectives, std::int64_t tp) {
  std::int64_t sum = 0;
  for (const TensorCollective& collective : collectives) sum += sent(collective, tp);
  return sum;
}

std::vector<TensorCollective> pass_collectives(const ModelConfig& config, const Unit& unit,
                                               const UnitSizes& sizes, UnitPass pass) {
  return pass_record(config, unit, sizes, pass).collectives;
}

}  // namespace lockstep::model
