#include "lockstep/cost/op_cost.h"

#include <gtest/gtest.h>

#include <utility>

namespace lockstep::cost {
namespace {

using program::OpKind;

TEST(OpTimes, AreThoseOfTheUnitAndTheKind) {
  OpTimes times;
  times.units.resize(2);
  times.units[1] = {.forward = {1},
                    .recompute = {2},
                    .input_grad = {3},
                    .weight_grad = {4},
                    .gather = {5},
                    .reduce = {6},
                    .update = {7},
                    .reduce_across = {8}};
  times.send = {9}, times.tied = {10}, times.norm = {11};
  const auto of_unit = [&](OpKind kind, int unit) {
    return times.time({.kind = kind, .unit = unit}).value;
  };
  const std::pair<OpKind, double> unit_kinds[] = {
      {OpKind::kForward, 1},          {OpKind::kRecompute, 2},
      {OpKind::kInputGrad, 3},        {OpKind::kWeightGrad, 4},
      {OpKind::kBackward, 3 + 4},     {OpKind::kGather, 5},
      {OpKind::kAllGatherUpdated, 5}, {OpKind::kReduce, 6},
      {OpKind::kUpdate, 7},           {OpKind::kFree, 0},
      {OpKind::kReduceAcross, 8}};
  for (const auto& [kind, seconds] : unit_kinds) {
    EXPECT_EQ(of_unit(kind, 1), seconds) << static_cast<int>(kind);
    EXPECT_EQ(of_unit(kind, 0), 0) << static_cast<int>(kind);
  }
  EXPECT_EQ(times.time({.kind = OpKind::kSend, .transfer = 0}).value, 9);
  EXPECT_EQ(times.time({.kind = OpKind::kReduceTied}).value, 10);
  EXPECT_EQ(times.time({.kind = OpKind::kNorm}).value, 11);
  EXPECT_EQ(times.time({.kind = OpKind::kCount}).value, 0);
}

}  // namespace
}  // namespace lockstep::cost
