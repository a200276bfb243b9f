// The source of lockstep/cuda/activations.cu on the host (host/cuda_runtime.h) against nn's
// operators on CPU tensors.
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lockstep/cuda/kernels.h"
#include "lockstep/nn/rope.h"
#include "lockstep/nn/swiglu.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::cuda {
namespace {

class Activations : public testing::TestWithParam<DType> {
 protected:
  ~Activations() override { host::device = {}; }

  at::ScalarType type() const { return tensor::scalar_type_of(GetParam()); }
  at::Tensor drawn(at::IntArrayRef sizes, double scale) const {
    return at::randn(sizes, at::kDouble).mul_(scale).to(type());
  }
  // Of what is computed in, and of an element.
  double wide_eps() const { return GetParam() == DType::kF64 ? 0x1p-53 : 0x1p-24; }
  double element_eps() const { return GetParam() == DType::kBF16 ? 0x1p-8 : 0.0; }

  // |made - expected| <= eps x scale where sums and products round, and where the result is then
  // rounded again, one unit of that.
  void expect_near(const at::Tensor& made, const at::Tensor& expected, const at::Tensor& scale,
                   double units, const std::string& what) const {
    const at::Tensor far = made.to(at::kDouble).sub(expected.to(at::kDouble)).abs();
    const at::Tensor room = scale.to(at::kDouble)
                                .abs()
                                .mul(units * wide_eps())
                                .add(expected.to(at::kDouble).abs(), 2 * element_eps());
    // A result between two elements may go to either; that is rare.
    if (GetParam() == DType::kBF16) {
      EXPECT_LE(far.gt(0).sum().item<std::int64_t>(), 1 + far.numel() / 100) << what;
    }
    EXPECT_TRUE(far.le(room).all().item<bool>()) << what << ": " << far.div(room).max();
  }
};

TEST_P(Activations, RotateAsTheCpu) {
  model::ModelConfig config;
  config.head_dim = 12;
  const std::int64_t seq = 5, batch = 3, heads = 4, width = 60;  // twelve columns are not turned
  const nn::Rope rope(config, seq, type(), at::kCPU);
  // The tables, as the rotation of (1, 0).
  const auto wide = type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor unit = at::empty({seq, 12}, wide).fill_(1.0);
  unit.narrow(1, 6, 6).fill_(0.0);
  nn::Rope(config, seq, wide, at::kCPU).rotate(unit, 1);
  const at::Tensor cosine = unit.narrow(1, 0, 6).contiguous();
  const at::Tensor sine = unit.narrow(1, 6, 6).contiguous();
  for (const unsigned blocks : {1U, 4U, 1000U})
    for (const double sign : {1.0, -1.0}) {
      host::device.max_blocks = blocks;
      const at::Tensor x = drawn({batch * seq, width}, 3.0), expected = x.clone(), made = x.clone();
      sign > 0 ? rope.rotate(expected, heads) : rope.rotate_back(expected, heads);
      launch_rotate(GetParam(), made.mutable_data_ptr(), cosine.const_data_ptr(),
                    sine.const_data_ptr(), {batch * seq, width, heads, 12, seq, sign}, nullptr);
      const at::Tensor sizes = at::empty(x.sizes(), at::kDouble).fill_(x.abs().max().item());
      expect_near(made, expected, sizes, 4, "rotated");
      EXPECT_TRUE(made.narrow(1, 48, 12).equal(x.narrow(1, 48, 12))) << "not turned";
      EXPECT_FALSE(made.equal(x));
    }
}

TEST_P(Activations, GateAsTheCpu) {
  for (const std::int64_t columns : {1, 255, 256, 300})
    for (const unsigned blocks : {1U, 2U, 1000U}) {
      host::device.max_blocks = blocks;
      const std::int64_t rows = 5;
      const at::Tensor pair = drawn({rows, 2 * columns}, 4.0), d = drawn({rows, columns}, 2.0);
      const at::Tensor made = at::empty({rows, columns}, type());
      launch_swiglu(GetParam(), pair.const_data_ptr(), made.mutable_data_ptr(), {rows, columns},
                    nullptr);
      const at::Tensor expected = nn::swiglu(pair);
      // An exponential of either library is within two units, a sum, a quotient and a product half
      // a unit each.
      expect_near(made, expected, expected, 7, "gated");

      const at::Tensor made_d = at::empty(pair.sizes(), type());
      launch_swiglu_grad(GetParam(), d.const_data_ptr(), pair.const_data_ptr(),
                         made_d.mutable_data_ptr(), {rows, columns}, nullptr);
      const at::Tensor expected_d = nn::swiglu_grad(pair, d);
      const at::Tensor gate = nn::glu_half(pair, 0), up = nn::glu_half(pair, 1);
      // The slope of silu is a difference where it is near zero: its terms are at most 1 + |gate|.
      expect_near(nn::glu_half(made_d, 0), nn::glu_half(expected_d, 0),
                  d.mul(up).mul(gate.abs().add(1.0)), 12, "gate");
      expect_near(nn::glu_half(made_d, 1), nn::glu_half(expected_d, 1), nn::glu_half(expected_d, 1),
                  7, "up");
    }
}

TEST_P(Activations, TakeNoRows) {
  launch_swiglu(GetParam(), nullptr, nullptr, {0, 4}, nullptr);
  launch_swiglu_grad(GetParam(), nullptr, nullptr, nullptr, {0, 4}, nullptr);
  launch_rotate(GetParam(), nullptr, nullptr, nullptr, {0, 4, 1, 4, 2, 1.0}, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Types, Activations,
                         testing::Values(DType::kF64, DType::kF32, DType::kBF16),
                         [](const auto& of) { return std::string(to_text(of.param)); });

TEST(ActivationsOfIntegers, AreRefused) {
  EXPECT_THROW(launch_swiglu(DType::kI64, nullptr, nullptr, {1, 1}, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::cuda
