#include "lockstep/mesh/tensor_state.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace lockstep::mesh {
namespace {

constexpr AxisState kReplicated = AxisState::replicated();
constexpr AxisState kPartial = AxisState::partial();
constexpr AxisState kSharded0 = AxisState::sharded(0);
constexpr AxisState kSharded1 = AxisState::sharded(1);

enum class Verb { kAllGather, kReduceScatter1, kAllReduce, kAllToAll1, kSlice1 };

Result<TensorState> apply(Verb verb, const TensorState& state, AxisSet axes) {
  switch (verb) {
    case Verb::kAllGather:
      return state.all_gather(axes);
    case Verb::kReduceScatter1:
      return state.reduce_scatter(axes, 1);
    case Verb::kAllReduce:
      return state.all_reduce(axes);
    case Verb::kAllToAll1:
      return state.all_to_all(axes, 1);
    case Verb::kSlice1:
      return state.slice(axes, 1);
  }
  return Error{};
}

struct Row {
  Verb verb;
  AxisState from;
  std::optional<AxisState> to;  // absent: refused
  const char* message = "";
};

// Every state under every transition.
const std::vector<Row> kRows = {
    {Verb::kAllGather, kSharded0, kReplicated},
    {Verb::kAllGather, kSharded1, kReplicated},
    {Verb::kAllGather,
     kReplicated,
     {},
     "all_gather over tp needs a tensor that is sharded on tp, but it is replicated"},
    {Verb::kAllGather,
     kPartial,
     {},
     "all_gather over tp needs a tensor that is sharded on tp, but it is partial"},
    {Verb::kReduceScatter1, kPartial, kSharded1},
    {Verb::kReduceScatter1,
     kReplicated,
     {},
     "reduce_scatter over tp needs a tensor that is partial on tp, but it is replicated"},
    {Verb::kReduceScatter1,
     kSharded0,
     {},
     "reduce_scatter over tp needs a tensor that is partial on tp, but it is sharded(0)"},
    {Verb::kReduceScatter1,
     kSharded1,
     {},
     "reduce_scatter over tp needs a tensor that is partial on tp, but it is sharded(1)"},
    {Verb::kAllReduce, kPartial, kReplicated},
    {Verb::kAllReduce,
     kReplicated,
     {},
     "all_reduce over tp needs a tensor that is partial on tp, but it is replicated"},
    {Verb::kAllReduce,
     kSharded0,
     {},
     "all_reduce over tp needs a tensor that is partial on tp, but it is sharded(0)"},
    {Verb::kAllReduce,
     kSharded1,
     {},
     "all_reduce over tp needs a tensor that is partial on tp, but it is sharded(1)"},
    {Verb::kAllToAll1, kSharded0, kSharded1},
    {Verb::kAllToAll1,
     kSharded1,
     {},
     "all_to_all over tp needs a tensor that is sharded along another dim on tp, but it is "
     "sharded(1)"},
    {Verb::kAllToAll1,
     kReplicated,
     {},
     "all_to_all over tp needs a tensor that is sharded on tp, but it is replicated"},
    {Verb::kAllToAll1,
     kPartial,
     {},
     "all_to_all over tp needs a tensor that is sharded on tp, but it is partial"},
    {Verb::kSlice1, kReplicated, kSharded1},
    {Verb::kSlice1,
     kSharded0,
     {},
     "slice over tp needs a tensor that is replicated on tp, but it is sharded(0)"},
    {Verb::kSlice1,
     kSharded1,
     {},
     "slice over tp needs a tensor that is replicated on tp, but it is sharded(1)"},
    {Verb::kSlice1,
     kPartial,
     {},
     "slice over tp needs a tensor that is replicated on tp, but it is partial"},
};

TEST(TensorState, EveryStateUnderEveryTransition) {
  EXPECT_EQ(kRows.size(), 5u * 4u);
  for (const Row& row : kRows) {
    const TensorState before =
        TensorState().with(Axis::kTensor, row.from).with(Axis::kDataShard, kPartial);
    const auto after = apply(row.verb, before, Axis::kTensor);
    ASSERT_EQ(after.ok(), row.to.has_value()) << static_cast<int>(row.verb) << to_text(row.from);
    if (row.to) {
      EXPECT_EQ(*after, before.with(Axis::kTensor, *row.to)) << "only tp may change";
      EXPECT_EQ(after->on(Axis::kTensor), *row.to);
    } else {
      EXPECT_EQ(after.error().code, Code::kWrongTensorState);
      EXPECT_EQ(after.error().message, row.message);
      EXPECT_FALSE(after.error().help.empty());
    }
  }
}

TEST(TensorState, SeveralAxesMoveTogetherOrNotAtAll) {
  const TensorState gradient = TensorState().with(kData, kPartial);
  EXPECT_EQ(*gradient.all_reduce(kData), TensorState());
  EXPECT_EQ(*gradient.reduce_scatter(kDenseShard, 0)->all_reduce(Axis::kDataReplicate),
            TensorState().with(kDenseShard, kSharded0));

  const auto twice = gradient.all_reduce(Axis::kContext)->all_reduce(kData);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message,
            "all_reduce over cp needs a tensor that is partial on cp, but it is replicated");

  const auto two_dims = TensorState()
                            .with(Axis::kContext, kSharded0)
                            .with(Axis::kDataShard, kSharded1)
                            .all_gather(kDenseShard);
  ASSERT_FALSE(two_dims.ok());
  EXPECT_EQ(two_dims.error().message,
            "all_gather over dp_shard needs a tensor that is sharded(0) on dp_shard, but it is "
            "sharded(1)");
}

TEST(TensorState, ReducingInTwoWaysMeetsInOneState) {
  const TensorState before = TensorState().with(Axis::kTensor, kPartial);
  EXPECT_EQ(*before.reduce_scatter(Axis::kTensor, 1)->all_gather(Axis::kTensor),
            *before.all_reduce(Axis::kTensor));
}

TEST(TensorState, ReadsAsAList) {
  EXPECT_EQ(to_text(TensorState()), "replicated");
  EXPECT_EQ(to_text(TensorState()
                        .with(Axis::kTensor, AxisState::sharded(12))
                        .with(Axis::kDataShard, kPartial)),
            "tp: sharded(12), dp_shard: partial");
}

TEST(TensorState, NoAxisOrNegativeDimIsABug) {
  EXPECT_THROW((void)TensorState().slice({}, 0), BrokenInvariant);
  EXPECT_THROW((void)TensorState().slice(Axis::kTensor, -1), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::mesh
