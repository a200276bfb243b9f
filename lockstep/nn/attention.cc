#include "lockstep/nn/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/attention_grad.h"
#include "lockstep/nn/wide_rows.h"

namespace lockstep::nn {
namespace {

// What the flash kernels read and write: [batch, heads, seq, head_dim].
at::Tensor heads_first(const at::Tensor& x) { return x.transpose(1, 2); }

}  // namespace

Attention::Attention(const model::ModelConfig& config, const model::Unit& unit,
                     const model::FlatLayout& flat, std::int64_t batch, std::int64_t seq,
                     std::int64_t tp, const Rope& rope)
    : batch_(batch),
      seq_(seq),
      heads_(config.heads / tp),
      kv_heads_(config.kv_heads / tp),
      head_dim_(config.head_dim),
      rope_(&rope) {
  LS_CHECK(config.heads % tp == 0 && config.kv_heads % tp == 0, tp, " tensor ranks for ",
           config.heads, " heads and ", config.kv_heads, " key-value heads");
  LS_CHECK(unit.attention && (unit.attention->window == 0 || unit.attention->window >= seq) &&
               config.attention_softcap == 0.0 && config.query_scale_dim == 0.0,
           "attention to all positions before, without a cap");
  LS_CHECK(config.qk_norm != model::QkNorm::kWide, "norms of single heads, not of all together");
  if (config.qk_norm == model::QkNorm::kPerHead)
    norms_ = Norms{Norm(config, unit, flat, "blocks.{i}.attn.q_norm"),
                   Norm(config, unit, flat, "blocks.{i}.attn.k_norm")};
}

at::Tensor Attention::by_head(const at::Tensor& x) const {
  return x.view({batch_, seq_, heads_, head_dim_});
}

Attention::Heads Attention::split(const at::Tensor& qkv) const {
  // CUDA's flash kernel takes 16-bit types only and wants the state of its random numbers back.
  LS_CHECK(qkv.is_cpu(), "attention is written for the CPU's kernel, not for device ",
           qkv.device());
  const at::Tensor all = qkv.view({batch_, seq_, -1, head_dim_});
  return {.q = all.narrow(2, 0, heads_),
          .k = all.narrow(2, heads_, kv_heads_),
          .v = all.narrow(2, heads_ + kv_heads_, kv_heads_)};
}

void Attention::apply_rope(const at::Tensor& x) const {
  rope_->rotate(x.view({batch_ * seq_, -1}), x.size(2));
}

void Attention::apply_rope_backward(const at::Tensor& x) const {
  rope_->rotate_back(x.view({batch_ * seq_, -1}), x.size(2));
}

// As the kernels read them.
Attention::Heads Attention::read(const at::Tensor& params, const at::Tensor& qkv) const {
  Heads x = split(qkv);
  if (!norms_) return x;
  x.q = norms_->q.forward(params, x.q, x.q_stats);
  apply_rope(x.q);
  x.k = norms_->k.forward(params, x.k, x.k_stats);
  apply_rope(x.k);
  return x;
}

Attention::Result Attention::forward(const at::Tensor& params, const at::Tensor& qkv) const {
  if (!norms_) rope_->rotate(qkv, heads_ + kv_heads_);
  const Heads x = read(params, qkv);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_first(x.q), heads_first(x.k), heads_first(x.v), 0.0, /*is_causal=*/true);
  return {heads_first(out).view({-1, query_width()}), std::move(lse)};
}

at::Tensor Attention::grad(const at::Tensor& params, at::Tensor qkv, const at::Tensor& out,
                           at::Tensor lse, at::Tensor d_out, Grads& made) const {
  Heads x = read(params, qkv);
  Heads d = is_narrow(qkv) ? narrow_grads(x, out, lse, d_out) : wide_grads(x, out, lse, d_out);
  for (at::Tensor* used : {&d_out, &lse, &x.q, &x.k, &x.v}) used->reset();
  if (!norms_) qkv.reset();
  if (d.all.defined()) {
    rope_->rotate_back(d.all, heads_ + kv_heads_);
  } else {
    apply_rope_backward(d.q);
    apply_rope_backward(d.k);
  }
  if (norms_) {
    const Heads raw = split(qkv);
    d.q = norms_->q.grad(params, std::move(d.q), raw.q, x.q_stats, made.q);
    d.k = norms_->k.grad(params, std::move(d.k), raw.k, x.k_stats, made.k);
  }
  x = {};
  qkv.reset();
  if (d.all.defined()) return d.all;
  return at::cat({d.q, d.k, d.v}, 2).view({batch_ * seq_, -1});
}

Attention::Heads Attention::wide_grads(const Heads& x, const at::Tensor& out, const at::Tensor& lse,
                                       const at::Tensor& d_out) const {
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      heads_first(by_head(d_out)), heads_first(x.q), heads_first(x.k), heads_first(x.v),
      heads_first(by_head(out)), lse, 0.0, /*is_causal=*/true);
  return {.q = heads_first(dq), .k = heads_first(dk), .v = heads_first(dv)};
}

Attention::Heads Attention::narrow_grads(const Heads& x, const at::Tensor& out,
                                         const at::Tensor& lse, const at::Tensor& d_out) const {
  const at::Tensor all = at::empty({batch_ * seq_, width()}, d_out.options());
  Heads d = split(all);
  d.all = all;
  attention_grad({x.q, x.k, x.v}, by_head(out), lse, by_head(d_out), {d.q, d.k, d.v});
  return d;
}

void Attention::add_grads(const Grads& made, const at::Tensor& grads, bool is_first) const {
  if (!norms_) return;
  norms_->q.add_grads(made.q, grads, is_first);
  norms_->k.add_grads(made.k, grads, is_first);
}

}  // namespace lockstep::nn
