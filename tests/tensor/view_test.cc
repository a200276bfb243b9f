#include "lockstep/tensor/view.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace lockstep::tensor {
namespace {

TEST(View, IsTheSameAsLibTorchsOwn) {
  const at::Tensor x = at::arange(60, at::kDouble).view({5, 12});
  const at::Tensor rows = x.narrow(0, 1, 3);  // begins inside its memory
  EXPECT_TRUE(at::equal(view_of(rows, {3, 4}, {12, 1}, 8), rows.narrow(1, 8, 4)));
  EXPECT_TRUE(at::equal(view_of(rows, {12, 3}, {1, 12}, 0), rows.t()));
  EXPECT_TRUE(at::equal(view_of(rows, {3, 3, 4}, {12, 4, 1}, 0), rows.view({3, 3, 4})));
}

TEST(View, SharesMemoryAndKeepsItAlive) {
  at::Tensor x = at::arange(6, at::kFloat);
  const at::Tensor view = view_of(x, {2}, {1}, 4);
  view.mul_(10);
  EXPECT_EQ(x[5].item<float>(), 50.0F);
  x.reset();
  EXPECT_EQ(view[0].item<float>(), 40.0F);
}

}  // namespace
}  // namespace lockstep::tensor
