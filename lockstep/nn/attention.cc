#include "lockstep/nn/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

// What the flash kernels read and write, [batch, heads, seq, head_dim], from heads as above, and
// back.
at::Tensor heads_first(const at::Tensor& x) {
  return tensor::view_of(x, {x.size(0), x.size(2), x.size(1), x.size(3)},
                         {x.stride(0), x.stride(2), x.stride(1), x.stride(3)}, 0);
}

// The same from [T, heads x head_dim].
at::Tensor heads_first(const at::Tensor& rows, const at::Tensor& like) {
  const std::int64_t row = rows.stride(0), seq = like.size(1), head_dim = like.size(3);
  return tensor::view_of(rows, {like.size(0), like.size(2), seq, head_dim},
                         {seq * row, head_dim, row, 1}, 0);
}

Attended flash(const HeadTensors& of, bool is_causal, std::optional<double> scale) {
  // CUDA's flash kernel takes 16-bit types only and wants the state of its random numbers back.
  LS_CHECK(of.q.is_cpu(), "attention is written for the CPU's kernel, not for device ",
           of.q.device());
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_first(of.q), heads_first(of.k), heads_first(of.v), 0.0, is_causal, {}, scale);
  const std::int64_t width = of.q.size(2) * of.q.size(3);
  return {heads_first(out).view({-1, width}), std::move(lse)};
}

}  // namespace

Attended attention(const HeadTensors& of) { return flash(of, /*is_causal=*/true, std::nullopt); }

Attended attention_of_one(const HeadTensors& of, double scale) {
  LS_CHECK(of.q.size(1) == 1, of.q.size(1), " queries");
  return flash(of, /*is_causal=*/false, scale);
}

HeadTensors attention_grad(const HeadTensors& of, const at::Tensor& out, const at::Tensor& lse,
                           const at::Tensor& d_out) {
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads_first(d_out, of.q), heads_first(of.q), heads_first(of.k), heads_first(of.v),
      heads_first(out, of.q), lse, 0.0, /*is_causal=*/true);
  return {heads_first(dq), heads_first(dk), heads_first(dv)};
}

}  // namespace lockstep::nn
