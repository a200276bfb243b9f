#include "lockstep/nn/softcap.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

// An element's bits do not depend on its place in a vector.
TEST(Softcap, BitsOfAnElementDependOnItAlone) {
  const at::Tensor x = random("x", {1000}, at::kFloat, 9.0);
  const at::Tensor all = x.clone(), slopes = at::empty({1000}, at::kFloat);
  softcap(all, 3.0, slopes);
  for (const std::int64_t begin : {1, 7, 990}) {
    const at::Tensor part = x.narrow(0, begin, 9).clone(), slope = at::empty({9}, at::kFloat);
    softcap(part, 3.0, slope);
    EXPECT_TRUE(at::equal(part, all.narrow(0, begin, 9)));
    EXPECT_TRUE(at::equal(slope, slopes.narrow(0, begin, 9)));
  }
  EXPECT_LE(distance(all, (x.to(at::kDouble) / 3.0).tanh() * 3.0), 3e-7);
  const at::Tensor d = random("d", {1000}, at::kBFloat16), want = d.to(at::kFloat).mul_(slopes);
  softcap_grad(d, slopes);
  EXPECT_TRUE(at::equal(d, want.to(at::kBFloat16)));
}

}  // namespace
}  // namespace lockstep::nn
