#include "lockstep/nn/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <cmath>
#include <numbers>

#include "lockstep/base/check.h"

namespace lockstep::nn {
namespace {

// Radians per position of pair `i`.
double frequency(const arch::ModelConfig& config, std::int64_t i) {
  const double plain = std::pow(
      config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  const arch::RopeScaling& scaling = config.rope_scaling;
  if (scaling.factor == 1.0) return plain;
  const double turns =
      static_cast<double>(scaling.original_positions) * plain / (2.0 * std::numbers::pi);
  if (turns < scaling.low_freq) return plain / scaling.factor;
  if (turns > scaling.high_freq) return plain;
  const double kept = (turns - scaling.low_freq) / (scaling.high_freq - scaling.low_freq);
  return (1.0 - kept) * plain / scaling.factor + kept * plain;
}

}  // namespace

Rope::Rope(const arch::ModelConfig& config, std::int64_t seq, at::ScalarType type,
           at::Device device)
    : seq_(seq), head_dim_(config.head_dim) {
  if (arch::positions(config) != arch::Positions::kRotary) return;
  LS_CHECK(head_dim_ % 2 == 0, "rotary positions turn pairs, but head_dim is ", head_dim_);
  const std::int64_t pairs = head_dim_ / 2;
  const at::Tensor cosine = at::empty({seq, pairs}, at::kDouble);
  const at::Tensor sine = at::empty({seq, pairs}, at::kDouble);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double step = frequency(config, i);
    for (std::int64_t t = 0; t < seq; ++t) {
      const double angle = static_cast<double>(t) * step;
      cosine.mutable_data_ptr<double>()[t * pairs + i] = std::cos(angle);
      sine.mutable_data_ptr<double>()[t * pairs + i] = std::sin(angle);
    }
  }
  cos_ = cosine.to(device, type).unsqueeze_(1);
  sin_ = sine.to(device, type).unsqueeze_(1);
}

void Rope::rotate(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, 1.0); }

void Rope::rotate_back(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, -1.0); }

void Rope::apply(const at::Tensor& x, std::int64_t heads, double sign) const {
  if (!cos_.defined()) return;
  const at::Tensor pairs =
      x.narrow(1, 0, heads * head_dim_).view({-1, seq_, heads, 2, head_dim_ / 2});
  const at::Tensor first = pairs.select(3, 0);
  const at::Tensor second = pairs.select(3, 1);
  const at::Tensor turned = at::mul(first, sin_);
  first.mul_(cos_).addcmul_(second, sin_, -sign);
  second.mul_(cos_).add_(turned, sign);
}

}  // namespace lockstep::nn
