#include "lockstep/nn/rope.h"

#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

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

// `x` is [tokens, heads x head_dim], tables are [seq, 1, head_dim / 2]. Narrow elements are turned
// in copies of a few rows.
void rotate_on_cpu(at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, double sign) {
  const std::int64_t seq = cosine.size(0), half = cosine.size(2), heads = x.size(1) / half / 2;
  if (x.scalar_type() == cosine.scalar_type())
    return turn(x.view({-1, seq, heads, 2, half}), cosine, sine, sign);
  const std::int64_t rows = model::wide_rows(x.size(1));
  for (std::int64_t start = 0; start < x.size(0); start += seq)
    for (std::int64_t begin = 0; begin < seq; begin += rows) {
      const std::int64_t n = std::min(rows, seq - begin);
      const at::Tensor narrow = x.narrow(0, start + begin, n);
      const at::Tensor wide = narrow.to(cosine.scalar_type());
      turn(wide.view({n, heads, 2, half}), cosine.narrow(0, begin, n), sine.narrow(0, begin, n),
           sign);
      narrow.copy_(wide);
    }
}

// The same as an operator, which an accelerator has a kernel of its own for.
TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def("rotate_(Tensor(a!) x, Tensor cosine, Tensor sine, float sign) -> ()");
}
TORCH_LIBRARY_IMPL(lockstep, CPU, library) { library.impl("rotate_", TORCH_FN(rotate_on_cpu)); }

}  // namespace

Rope::Rope(const model::ModelConfig& config, std::int64_t seq, at::ScalarType type,
           at::Device device, model::ContextPlace place)
    : head_dim_(config.head_dim) {
  if (model::positions(config) != model::Positions::kRotary) return;
  LS_CHECK(head_dim_ % 2 == 0, "rotary positions turn pairs, but head_dim is ", head_dim_);
  const std::int64_t pairs = head_dim_ / 2;
  const at::Tensor cosine = at::empty({seq, pairs}, at::kDouble);
  const at::Tensor sine = at::empty({seq, pairs}, at::kDouble);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double step = frequency(config, i);
    for (const model::PositionRun& run : position_runs(place, seq))
      for (std::int64_t t = 0; t < run.count; ++t) {
        const double angle = static_cast<double>(run.position + t) * step;
        cosine.mutable_data_ptr<double>()[(run.row + t) * pairs + i] = std::cos(angle);
        sine.mutable_data_ptr<double>()[(run.row + t) * pairs + i] = std::sin(angle);
      }
  }
  const at::ScalarType wide = at::toOpMathType(type);
  cos_ = cosine.to(device, wide).unsqueeze_(1);
  sin_ = sine.to(device, wide).unsqueeze_(1);
}

Rope Rope::rows(std::int64_t first, std::int64_t count) const {
  if (!cos_.defined() || cos_.size(0) == count) return *this;
  Rope some = *this;
  some.cos_ = cos_.narrow(0, first, count);
  some.sin_ = sin_.narrow(0, first, count);
  return some;
}

void Rope::rotate(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, 1.0); }

void Rope::rotate_back(const at::Tensor& x, std::int64_t heads) const { apply(x, heads, -1.0); }

void Rope::apply(const at::Tensor& x, std::int64_t heads, double sign) const {
  if (!cos_.defined()) return;
  at::Tensor part = x.narrow(1, 0, heads * head_dim_);
  if (part.is_cpu()) return rotate_on_cpu(part, cos_, sin_, sign);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("lockstep::rotate_", "")
                             .typed<decltype(rotate_on_cpu)>();
  op.call(part, cos_, sin_, sign);
}

}  // namespace lockstep::nn
