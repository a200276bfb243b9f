#include "lockstep/tensor/distributed.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::tensor {
namespace {

using mesh::Axis;
using mesh::AxisState;

Deadline soon() { return Deadline::after(Seconds{20}); }

void on_two_ranks(const std::function<void(comm::World&, AxisGroup)>& body) {
  comm::run_local(2, [&](comm::World& world) {
    auto comm = world.connect("tp", "tp", {Rank{0}, Rank{1}}, soon());
    body(world, {*comm, Axis::kTensor});
  });
}

mesh::TensorState on_tp(AxisState state) { return mesh::TensorState().with(Axis::kTensor, state); }

TEST(Distributed, GathersAlongAnyDim) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({4, 6});
  for (const int dim : {0, 1})
    on_two_ranks([&](comm::World& world, AxisGroup group) {
      const at::Tensor own =
          whole.chunk(2, dim)[static_cast<std::size_t>(world.rank().value)].contiguous();
      const Distributed gathered = all_gather(group, {own, on_tp(AxisState::sharded(dim))}, soon());
      EXPECT_TRUE(at::equal(gathered.local, whole));
      EXPECT_EQ(gathered.state.on(Axis::kTensor), AxisState::replicated());
    });
}

TEST(Distributed, ReduceScatterThenGatherIsAllReduce) {
  const at::Tensor whole = at::arange(24, at::kDouble).view({4, 6});
  for (const int dim : {0, 1})
    on_two_ranks([&](comm::World& world, AxisGroup group) {
      const Distributed partial{whole.mul(world.rank().value + 1), on_tp(AxisState::partial())};
      const Distributed shard = reduce_scatter(group, partial, dim, soon());
      EXPECT_EQ(shard.state.on(Axis::kTensor), AxisState::sharded(dim));
      EXPECT_TRUE(at::equal(all_gather(group, shard, soon()).local, whole.mul(3)));
      EXPECT_TRUE(at::equal(all_reduce(group, partial, soon()).local, whole.mul(3)));
    });
}

TEST(Distributed, AWrongStateIsABrokenInvariantOnEveryRank) {
  on_two_ranks([&](comm::World&, AxisGroup group) {
    const at::Tensor data = at::full({4}, 1.0);
    EXPECT_THROW(all_reduce(group, {data, on_tp(AxisState::replicated())}, soon()),
                 BrokenInvariant);
    EXPECT_THROW(all_gather(group, {data, on_tp(AxisState::partial())}, soon()), BrokenInvariant);
    EXPECT_THROW(reduce_scatter(group, {data, on_tp(AxisState::sharded(0))}, 0, soon()),
                 BrokenInvariant);
  });
}

TEST(AsBuffer, DescribesTheMemoryAndRefusesHoles) {
  const at::Tensor tensor = at::arange(6, at::kLong).view({2, 3});
  const Buffer buffer = as_buffer(tensor);
  EXPECT_EQ(buffer.data, tensor.data_ptr());
  EXPECT_EQ(buffer.bytes(), 48);
  EXPECT_EQ(buffer.dtype, DType::kI64);
  EXPECT_THROW(as_buffer(tensor.t()), BrokenInvariant);
  for (const DType dtype : kAllDTypes) EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
}

}  // namespace
}  // namespace lockstep::tensor
