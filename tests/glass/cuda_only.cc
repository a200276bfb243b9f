// CPU kernels for operators that LibTorch has for CUDA alone, with the rules of its CUDA kernels,
// so that a device's kernels (nn/device_kernels.h) run on glass and on a CPU.
#include "tests/glass/cuda_only.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <tuple>

#include "lockstep/nn/attention.h"
#include "lockstep/nn/attention_grad.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/scored_attention.h"
#include "lockstep/nn/wide_product.h"

namespace lockstep::glass {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using OptionalInt = std::optional<std::int64_t>;

// Its own layout, [batch, seq, heads, head_dim].
void check_flash(const at::Tensor& q, const at::Tensor& k, double dropout, bool causal) {
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf,
              "FlashAttention only supports fp16 and bf16, not ", q.scalar_type());
  TORCH_CHECK(q.dim() == 4 && q.size(3) % 8 == 0 && q.size(3) <= 256 && q.stride(3) == 1 &&
                  k.stride(3) == 1 && q.size(2) % k.size(2) == 0,
              "what FlashAttention asks of its operands");
  TORCH_CHECK(dropout == 0, "glass has attention without dropout");
  TORCH_CHECK(causal || q.size(1) == k.size(1), "glass has as many keys as queries");
}

nn::Scores scores_of(const std::optional<double>& scale, const OptionalInt& left,
                     const at::Tensor& q) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  return {scale.value_or(usual), 0.0, left.value_or(-1) + 1};
}

// Every query sees every key, as those of a chunk behind that of the keys do.
std::vector<model::AttentionBlock> all_pairs(const at::Tensor& q) {
  return {{{0, q.size(1), q.size(1)}, {0, 0, q.size(1)}}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& /*seqs*/,
    const OptionalTensor& /*seqs_k*/, std::int64_t /*max_q*/, std::int64_t /*max_k*/,
    double dropout, bool causal, bool /*debug*/, std::optional<double> scale, OptionalInt left,
    OptionalInt /*right*/, const OptionalTensor& /*used*/, const OptionalTensor& /*slopes*/,
    const OptionalTensor& /*blocks*/, OptionalInt /*splits*/) {
  check_flash(q, k, dropout, causal);
  const at::Tensor out = at::empty({q.size(0) * q.size(1), q.size(2) * q.size(3)}, q.options());
  const at::Tensor lse =
      at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
  const nn::Scores scores = scores_of(scale, left, q);
  if (causal) {
    nn::scored_attention({q, k, v}, scores, out, lse);
  } else {
    const at::Tensor sum = at::zeros(out.sizes(), out.options().dtype(at::kFloat));
    lse.fill_(-std::numeric_limits<float>::infinity());
    nn::add_attention({q, k, v}, scores, all_pairs(q), /*is_first=*/false, sum, lse);
    out.copy_(sum);
  }
  return {out.view(q.sizes()), lse, at::zeros({2}, at::kUInt64), at::zeros({}, at::kUInt64),
          at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& d, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& lse, const at::Tensor& /*seqs*/,
    const at::Tensor& /*seqs_k*/, std::int64_t /*max_q*/, std::int64_t /*max_k*/, double dropout,
    bool causal, const at::Tensor& rng, const at::Tensor& /*unused*/, std::optional<double> scale,
    OptionalInt left, OptionalInt /*right*/) {
  check_flash(q, k, dropout, causal);
  TORCH_CHECK(rng.defined() && rng.numel() == 2, "the state of random numbers");
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const nn::HeadTensors made = {like(q), like(k), like(v)};
  const auto rows = [&](const at::Tensor& x) {
    return x.contiguous().view({q.size(0) * q.size(1), q.size(2) * q.size(3)});
  };
  const nn::Scores scores = scores_of(scale, left, q);
  if (causal) {
    nn::scored_attention_grad({q, k, v}, scores, rows(out), lse, rows(d), made);
    return {made.q, made.k, made.v};
  }
  const at::Tensor d_q = at::zeros(q.sizes(), q.options().dtype(at::kFloat));
  nn::add_attention_grad({q, k, v}, scores, all_pairs(q), /*is_first=*/false, rows(out), lse,
                         rows(d), {d_q, made.k, made.v});
  return {made.q.copy_(d_q), made.k, made.v};
}

at::Tensor widened(const at::Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

std::tuple<at::Tensor, at::Tensor> rms_forward(const at::Tensor& x, at::IntArrayRef /*shape*/,
                                               const OptionalTensor& gain,
                                               std::optional<double> eps) {
  const at::Tensor wide = widened(x), rstd = nn::rms_rstd(wide, eps.value());
  return {nn::rms_scale(wide, rstd, widened(*gain)).to(x.scalar_type()), rstd};
}

// The gradient of the gain is rounded to its type, as on CUDA.
std::tuple<at::Tensor, at::Tensor> rms_backward(const at::Tensor& d, const at::Tensor& x,
                                                at::IntArrayRef /*shape*/, const at::Tensor& rstd,
                                                const OptionalTensor& gain,
                                                std::array<bool, 2> /*wanted*/) {
  const at::Tensor dx = widened(d).clone(at::MemoryFormat::Contiguous);
  const at::Tensor d_gain = nn::rms_norm_grad(dx, widened(x), rstd, widened(*gain));
  return {dx.to(x.scalar_type()), d_gain.to(gain->scalar_type())};
}

at::Tensor& wide_mm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                    at::Tensor& out) {
  TORCH_CHECK(type == at::kFloat && a.scalar_type() == at::kBFloat16 && out.scalar_type() == type,
              "a product of ", a.scalar_type(), " into ", type);
  nn::multiply_into(out, a, b, 0.0);
  return out;
}

at::Tensor& wide_addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                       at::Tensor& out) {
  TORCH_CHECK(type == at::kFloat && a.scalar_type() == at::kBFloat16 && alpha.toDouble() == 1.0,
              "a product of ", a.scalar_type(), " into ", type);
  if (out.data_ptr() != self.data_ptr()) out.copy_(self);
  nn::multiply_into(out, a, b, beta.toDouble());
  return out;
}

at::Tensor& wide_bmm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                     at::Tensor& out) {
  for (std::int64_t i = 0; i < a.size(0); ++i) {
    at::Tensor matrix = out[i];
    wide_mm(a[i], b[i], type, matrix);
  }
  return out;
}

at::Tensor& wide_baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                         at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                         at::Tensor& out) {
  for (std::int64_t i = 0; i < a.size(0); ++i) {
    at::Tensor matrix = out[i];
    wide_addmm(self[i], a[i], b[i], type, beta, alpha, matrix);
  }
  return out;
}

}  // namespace

std::int64_t taken_inside(const std::string& op, const std::vector<at::Tensor>& operands) {
  if (op != "aten::_flash_attention_backward") return 0;
  const at::Tensor &q = operands[1], &k = operands[2];
  const std::int64_t rows = (q.size(1) + 127) / 128 * 128, d = q.size(3);
  const std::int64_t sums = rows * 4, d_q = rows * (d > 192 ? 256 : (d + 31) / 32 * 32) * 4;
  const std::int64_t d_k = q.size(2) == k.size(2) ? 0 : k.size(1) * d * 2;
  std::int64_t copies = 0;  // of gradient and output
  for (const at::Tensor& x : {operands[0], operands[4]})
    if (!x.is_contiguous()) copies += x.numel() * x.element_size();
  return q.size(0) * q.size(2) * (sums + d_q + 2 * d_k) + copies;
}

void install_cuda_only() {
  static auto* const aten =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static const bool once = [] {
    aten->impl("_flash_attention_forward", TORCH_FN(flash_forward));
    aten->impl("_flash_attention_backward", TORCH_FN(flash_backward));
    aten->impl("_fused_rms_norm", TORCH_FN(rms_forward));
    aten->impl("_fused_rms_norm_backward", TORCH_FN(rms_backward));
    aten->impl("mm.dtype_out", TORCH_FN(wide_mm));
    aten->impl("addmm.dtype_out", TORCH_FN(wide_addmm));
    aten->impl("bmm.dtype_out", TORCH_FN(wide_bmm));
    aten->impl("baddbmm.dtype_out", TORCH_FN(wide_baddbmm));
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace lockstep::glass
