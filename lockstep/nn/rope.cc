#include "lockstep/nn/rope.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/check.h"
#include "lockstep/model/unit_bytes.h"

namespace lockstep::nn {
namespace {

// Radians per position of pair `i`.
double frequency(const model::ModelConfig& config, std::int64_t i) {
  const double plain = std::pow(
      config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  const model::RopeScaling& scaling = config.rope_scaling;
  if (scaling.factor == 1.0) return plain;
  const double turns =
      static_cast<double>(scaling.original_positions) * plain / (2.0 * std::numbers::pi);
  if (turns < scaling.low_freq) return plain / scaling.factor;
  if (turns > scaling.high_freq) return plain;
  const double kept = (turns - scaling.low_freq) / (scaling.high_freq - scaling.low_freq);
  return (1.0 - kept) * plain / scaling.factor + kept * plain;
}

// `pairs` is [..., tokens, heads, 2, head_dim / 2].
void turn(const at::Tensor& pairs, const at::Tensor& cosine, const at::Tensor& sine, double sign) {
  const at::Tensor first = pairs.select(-2, 0);
  const at::Tensor second = pairs.select(-2, 1);
  const at::Tensor turned = at::mul(first, sine);
  first.mul_(cosine).addcmul_(second, sine, -sign);
  second.mul_(cosine).add_(turned, sign);
}

}  // namespace

Rope::Rope(const model::ModelConfig& config, std::int64_t seq, at::ScalarType type,
           at::Device device)
    : seq_(seq), head_dim_(config.head_dim) {
  if (model::positions(config) != model::Positions::kRotary) return;
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
  const at::ScalarType wide = at::toOpMathType(type);
  cos_ = cosine.to(device, wide).unsqueeze_(1);
  sin_ = sine.to(device, wide).unsqueeze_(1);
}

void Rope::rotate(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, 1.0); }

void Rope::rotate_back(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, -1.0); }

void Rope::apply(const at::Tensor& x, std::int64_t heads, double sign) const {
  if (!cos_.defined()) return;
  const at::Tensor part = x.narrow(1, 0, heads * head_dim_);
  if (part.scalar_type() == cos_.scalar_type())
    return turn(part.view({-1, seq_, heads, 2, head_dim_ / 2}), cos_, sin_, sign);
  if (!part.is_cpu()) {  // at one launch each
    const at::Tensor wide = part.to(cos_.scalar_type());
    turn(wide.view({-1, seq_, heads, 2, head_dim_ / 2}), cos_, sin_, sign);
    part.copy_(wide);
    return;
  }
  const std::int64_t rows = model::wide_rows(part.size(1));
  for (std::int64_t start = 0; start < part.size(0); start += seq_)
    for (std::int64_t begin = 0; begin < seq_; begin += rows) {
      const std::int64_t n = std::min(rows, seq_ - begin);
      const at::Tensor narrow = part.narrow(0, start + begin, n);
      const at::Tensor wide = narrow.to(cos_.scalar_type());
      turn(wide.view({n, heads, 2, head_dim_ / 2}), cos_.narrow(0, begin, n),
           sin_.narrow(0, begin, n), sign);
      narrow.copy_(wide);
    }
}

}  // namespace lockstep::nn
