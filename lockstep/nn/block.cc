#include "lockstep/nn/block.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/nn/flat_view.h"
#include "lockstep/nn/norm.h"

namespace lockstep::nn {
namespace {

at::Tensor left_half(const at::Tensor& pair) { return pair.narrow(1, 0, pair.size(1) / 2); }
at::Tensor right_half(const at::Tensor& pair) {
  return pair.narrow(1, pair.size(1) / 2, pair.size(1) / 2);
}

// silu(gate) x up (Shazeer, arXiv 2002.05202).
at::Tensor swiglu(const at::Tensor& gate_up) {
  return at::silu(left_half(gate_up)).mul_(right_half(gate_up));
}

// Gradient of gate and up from that of their product, which is used up.
at::Tensor swiglu_grad(const at::Tensor& gate_up, const at::Tensor& d_product) {
  const at::Tensor gate = left_half(gate_up);
  at::Tensor d_gate_up = at::empty_like(gate_up);
  at::Tensor d_gate = left_half(d_gate_up);
  at::Tensor d_up = right_half(d_gate_up);
  at::silu_out(d_up, gate);
  d_up.mul_(d_product);
  d_product.mul_(right_half(gate_up));
  at::silu_backward_out(d_gate, d_product, gate);
  return d_gate_up;
}

void require_llama(const arch::ModelConfig& config, const arch::Unit& unit) {
  LS_CHECK(unit.kind == arch::UnitKind::kBlock && config.family == arch::Family::kLlama,
           "a block of the llama family, not a unit of kind ", arch::to_text(unit.kind), " of ",
           arch::to_text(config.family));
  LS_CHECK(config.norm == arch::NormKind::kRmsNorm &&
               config.norm_place == arch::NormPlace::kBefore &&
               config.qk_norm == arch::QkNorm::kNone,
           "RMS norms before attention and MLP, and no others");
  LS_CHECK(!config.qkv_bias && !config.linear_bias, "linears without biases");
  LS_CHECK(unit.attention && unit.attention->window == 0 && config.attention_softcap == 0.0 &&
               config.query_scale_dim == 0.0,
           "attention to all positions before, without a cap");
}

}  // namespace

Block::Block(const arch::ModelConfig& config, const arch::Unit& unit, const arch::FlatLayout& flat,
             std::int64_t batch, std::int64_t seq, arch::Drop drop, const Rope& rope,
             TensorGroup group)
    : group_(group),
      batch_(batch),
      seq_(seq),
      hidden_(config.hidden),
      heads_(config.heads / group.size()),
      kv_heads_(config.kv_heads / group.size()),
      head_dim_(config.head_dim),
      ffn_(config.ffn / group.size()),
      eps_(config.norm_eps),
      drop_(drop),
      rope_(&rope) {
  require_llama(config, unit);
  const std::int64_t t = group.size();
  LS_CHECK(config.heads % t == 0 && config.kv_heads % t == 0 && config.ffn % t == 0, t,
           " tensor ranks do not divide ", config.name);
  LS_CHECK(group.path_rows(batch * seq) > 0);
  places_ = {
      .attn_norm = place_of(unit, flat, {"blocks.{i}.attn_norm.weight"}),
      .qkv = place_of(
          unit, flat,
          {"blocks.{i}.attn.q.weight", "blocks.{i}.attn.k.weight", "blocks.{i}.attn.v.weight"}),
      .out = place_of(unit, flat, {"blocks.{i}.attn.o.weight"}),
      .mlp_norm = place_of(unit, flat, {"blocks.{i}.mlp_norm.weight"}),
      .gate_up = place_of(unit, flat, {"blocks.{i}.mlp.gate.weight", "blocks.{i}.mlp.up.weight"}),
      .down = place_of(unit, flat, {"blocks.{i}.mlp.down.weight"}),
  };
  LS_CHECK(places_.qkv.size() == (heads_ + 2 * kv_heads_) * head_dim_ * hidden_);
  LS_CHECK(places_.gate_up.size() == 2 * ffn_ * hidden_);
}

// [batch, heads, seq, head_dim]: a view of `count` heads of [T, width], the first at head `first`.
at::Tensor Block::heads_of(const at::Tensor& x, std::int64_t first, std::int64_t count) const {
  return x.view({batch_, seq_, -1, head_dim_}).narrow(2, first, count).transpose(1, 2);
}

Block::Heads Block::split(const at::Tensor& qkv) const {
  // CUDA's flash kernel takes 16-bit types only and wants the state of its random numbers back.
  LS_CHECK(qkv.is_cpu(), "attention is written for the CPU's kernel, not for device ",
           qkv.device());
  return {heads_of(qkv, 0, heads_), heads_of(qkv, heads_, kv_heads_),
          heads_of(qkv, heads_ + kv_heads_, kv_heads_)};
}

at::Tensor Block::add_product_to(const at::Tensor& residual, const at::Tensor& x,
                                 const at::Tensor& weight) const {
  if (group_.size() == 1) return at::addmm(residual, x, weight.t());
  return group_.leave(at::mm(x, weight.t())).add_(residual);
}

void Block::attend(const at::Tensor& params, BlockStash& s, bool keep) const {
  s.input_rstd = rms_rstd(s.input, eps_);
  s.attn_normed = rms_scale(s.input, s.input_rstd, vector_at(params, places_.attn_norm));
  if (!keep) s.input_rstd.reset();
  at::Tensor rows = group_.enter(s.attn_normed);
  if (!keep || drop_.attn_normed) s.attn_normed.reset();
  s.qkv = at::mm(rows, matrix_at(params, places_.qkv, hidden_).t());
  rows.reset();
  rope_->rotate(s.qkv, heads_ + kv_heads_);
  {
    const Heads x = split(s.qkv);
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(x.q, x.k, x.v, 0.0,
                                                                      /*is_causal=*/true);
    s.attn_out = out.transpose(1, 2).view({-1, heads_ * head_dim_});
    if (keep) s.attn_lse = std::move(lse);
  }
  if (!keep) s.qkv.reset();
  s.middle =
      add_product_to(s.input, s.attn_out, matrix_at(params, places_.out, heads_ * head_dim_));
  if (keep) return;
  s.input.reset();
  s.attn_out.reset();
}

void Block::widen(const at::Tensor& params, BlockStash& s, bool keep) const {
  s.middle_rstd = rms_rstd(s.middle, eps_);
  s.mlp_normed = rms_scale(s.middle, s.middle_rstd, vector_at(params, places_.mlp_norm));
  if (!keep) s.middle_rstd.reset();
  const at::Tensor rows = group_.enter(s.mlp_normed);
  if (!keep || drop_.mlp_normed) s.mlp_normed.reset();
  s.gate_up = at::mm(rows, matrix_at(params, places_.gate_up, hidden_).t());
}

at::Tensor Block::run(const at::Tensor& params, BlockStash& s, bool keep) const {
  attend(params, s, keep);
  widen(params, s, keep);
  s.product = swiglu(s.gate_up);
  if (!keep) s.gate_up.reset();
  at::Tensor out = add_product_to(s.middle, s.product, matrix_at(params, places_.down, ffn_));
  if (drop_.product) s.product.reset();
  return out;
}

at::Tensor Block::forward(const at::Tensor& params, at::Tensor input) const {
  BlockStash passing;
  passing.input = std::move(input);
  return run(params, passing, /*keep=*/false);
}

at::Tensor Block::forward(const at::Tensor& params, at::Tensor input, BlockStash& stash) const {
  stash = {};
  stash.input = std::move(input);
  return run(params, stash, /*keep=*/true);
}

BlockStash Block::recompute(const at::Tensor& params, at::Tensor input) const {
  BlockStash stash;
  stash.input = std::move(input);
  attend(params, stash, /*keep=*/true);
  widen(params, stash, /*keep=*/true);
  if (!drop_.product) stash.product = swiglu(stash.gate_up);
  return stash;
}

at::Tensor Block::input_grad(const at::Tensor& params, BlockStash stash, at::Tensor d_out,
                             BlockWork& work, WeightsFollow follow) const {
  work = {};
  const at::Tensor d_middle = mlp_grad(params, stash, std::move(d_out), work, follow);
  attention_grad(params, stash, d_middle, work, follow);

  const at::Tensor gain = vector_at(params, places_.attn_norm);
  work.attn_normed = stash.attn_normed.defined() ? std::move(stash.attn_normed)
                                                 : rms_scale(stash.input, stash.input_rstd, gain);
  at::Tensor d = group_.leave(at::mm(work.d_qkv, matrix_at(params, places_.qkv, hidden_)));
  work.d_attn_norm = rms_grad(d, stash.input, stash.input_rstd, gain);
  return d.add_(d_middle);
}

at::Tensor Block::mlp_grad(const at::Tensor& params, BlockStash& s, at::Tensor d_out,
                           BlockWork& work, WeightsFollow follow) const {
  work.product = s.product.defined() ? std::move(s.product) : swiglu(s.gate_up);
  at::Tensor rows = group_.enter(d_out);
  at::Tensor d_product = at::mm(rows, matrix_at(params, places_.down, ffn_));
  work.d_out = follow == WeightsFollow::kAtOnce ? rows : d_out;
  rows.reset();
  work.d_gate_up = swiglu_grad(s.gate_up, d_product);
  d_product.reset();
  s.gate_up.reset();

  const at::Tensor gain = vector_at(params, places_.mlp_norm);
  work.mlp_normed =
      s.mlp_normed.defined() ? std::move(s.mlp_normed) : rms_scale(s.middle, s.middle_rstd, gain);
  at::Tensor d = group_.leave(at::mm(work.d_gate_up, matrix_at(params, places_.gate_up, hidden_)));
  work.d_mlp_norm = rms_grad(d, s.middle, s.middle_rstd, gain);
  s.middle.reset();
  s.middle_rstd.reset();
  return d.add_(d_out);
}

void Block::attention_grad(const at::Tensor& params, BlockStash& s, const at::Tensor& d_middle,
                           BlockWork& work, WeightsFollow follow) const {
  work.attn_out = std::move(s.attn_out);
  at::Tensor rows = group_.enter(d_middle);
  at::Tensor d_attn = at::mm(rows, matrix_at(params, places_.out, heads_ * head_dim_));
  work.d_middle = follow == WeightsFollow::kAtOnce ? rows : d_middle;
  rows.reset();
  std::vector<at::Tensor> parts;
  {
    const Heads x = split(s.qkv);
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(d_attn, 0, heads_), x.q, x.k, x.v, heads_of(work.attn_out, 0, heads_), s.attn_lse,
        0.0, /*is_causal=*/true);
    for (const at::Tensor& part : {dq, dk, dv})
      parts.push_back(part.transpose(1, 2).view({batch_ * seq_, -1}));
  }
  d_attn.reset();
  s.attn_lse.reset();
  s.qkv.reset();
  work.d_qkv = at::cat(parts, 1);
  parts.clear();
  rope_->rotate_back(work.d_qkv, heads_ + kv_heads_);
}

void Block::weight_grad(BlockWork work, const at::Tensor& grads, bool is_first) const {
  const auto all_rows = [&](at::Tensor x) {
    return x.size(0) == batch_ * seq_ ? x : group_.enter(x);
  };
  const auto add = [&](arch::FlatRange place, at::Tensor& d_out, at::Tensor& input) {
    const at::Tensor d = all_rows(std::move(d_out));
    const at::Tensor x = all_rows(std::move(input));
    add_product(matrix_at(grads, place, x.size(1)), d, x, is_first);
  };
  add(places_.qkv, work.d_qkv, work.attn_normed);
  add(places_.out, work.d_middle, work.attn_out);
  add(places_.gate_up, work.d_gate_up, work.mlp_normed);
  add(places_.down, work.d_out, work.product);
  add_value(vector_at(grads, places_.attn_norm), work.d_attn_norm, is_first);
  add_value(vector_at(grads, places_.mlp_norm), work.d_mlp_norm, is_first);
}

}  // namespace lockstep::nn
