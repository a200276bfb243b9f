#include "lockstep/nn/block.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/activation.h"

namespace lockstep::nn {
namespace {

std::string named(const char* name) { return std::string("blocks.{i}.") + name; }

// Gate and up are one product; without a gate it is up's alone.
Linear first_of_mlp(const model::ModelConfig& config, const model::Unit& unit,
                    const model::FlatLayout& flat, std::int64_t tp) {
  const model::Activation activation = model::activation(config);
  const std::int64_t out = config.ffn / tp * columns_per_output(activation);
  if (activation == model::Activation::kSwiGlu)
    return {unit, flat, {named("mlp.gate"), named("mlp.up")}, out, config.hidden};
  return {unit, flat, {named("mlp.up")}, out, config.hidden};
}

}  // namespace

Block::Block(const model::ModelConfig& config, const model::Unit& unit,
             const model::FlatLayout& flat, std::int64_t batch, std::int64_t seq, model::Drop drop,
             const Rope& rope, TensorGroup group)
    : group_(group),
      tokens_(batch * seq),
      drop_(drop),
      activation_(model::activation(config)),
      attn_norm_(config, unit, flat, named("attn_norm")),
      mlp_norm_(config, unit, flat, named("mlp_norm")),
      attention_(config, unit, flat, batch, seq, group.size(), rope),
      qkv_(unit, flat, {named("attn.q"), named("attn.k"), named("attn.v")}, attention_.width(),
           config.hidden),
      attn_out_(unit, flat, {named("attn.o")}, config.hidden, attention_.query_width()),
      gate_up_(first_of_mlp(config, unit, flat, group.size())),
      down_(unit, flat, {named("mlp.down")}, config.hidden, config.ffn / group.size()) {
  LS_CHECK(unit.kind == model::UnitKind::kBlock && config.norm_place == model::NormPlace::kBefore,
           "a block with norms before attention and MLP");
  LS_CHECK(qkv_.has_bias() == config.qkv_bias && attn_out_.has_bias() == config.linear_bias &&
               gate_up_.has_bias() == config.linear_bias && down_.has_bias() == config.linear_bias,
           "a unit with other biases than ", config.name);
  LS_CHECK(config.ffn % group.size() == 0 && group.local_rows(tokens_) > 0, group.size(),
           " tensor ranks do not divide ", config.name);
}

at::Tensor Block::finish_part(const at::Tensor& params, const Linear& linear, const at::Tensor& x,
                              const at::Tensor& residual) const {
  const at::Tensor weight = linear.weight(params).t();
  at::Tensor sum = group_.size() == 1 ? at::addmm(residual, x, weight)
                                      : group_.reduce_rows(at::mm(x, weight)).add_(residual);
  if (linear.has_bias()) sum.add_(linear.bias(params));
  return sum;
}

void Block::attend(const at::Tensor& params, BlockStash& s, bool keep) const {
  s.attn_normed = attn_norm_.forward(params, s.input, s.input_stats);
  if (!keep) s.input_stats = {};
  at::Tensor rows = group_.gather_rows(s.attn_normed);
  if (!keep || drop_.attn_normed) s.attn_normed.reset();
  s.qkv = qkv_.forward(params, rows);
  rows.reset();
  {
    auto [out, lse] = attention_.forward(params, s.qkv);
    s.attn_out = std::move(out);
    if (keep) s.attn_lse = std::move(lse);
  }
  if (!keep) s.qkv.reset();
  s.middle = finish_part(params, attn_out_, s.attn_out, s.input);
  if (keep) return;
  s.input.reset();
  s.attn_out.reset();
}

void Block::widen(const at::Tensor& params, BlockStash& s, bool keep) const {
  s.mlp_normed = mlp_norm_.forward(params, s.middle, s.middle_stats);
  if (!keep) s.middle_stats = {};
  const at::Tensor rows = group_.gather_rows(s.mlp_normed);
  if (!keep || drop_.mlp_normed) s.mlp_normed.reset();
  s.gate_up = gate_up_.forward(params, rows);
}

at::Tensor Block::run(const at::Tensor& params, BlockStash& s, bool keep) const {
  attend(params, s, keep);
  widen(params, s, keep);
  s.product = activate(activation_, s.gate_up);
  if (!keep) s.gate_up.reset();
  at::Tensor out = finish_part(params, down_, s.product, s.middle);
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
  if (!drop_.product) stash.product = activate(activation_, stash.gate_up);
  return stash;
}

at::Tensor Block::input_grad(const at::Tensor& params, BlockStash stash, at::Tensor d_out,
                             WgradInputs& work, WgradTiming follow) const {
  work = {};
  const at::Tensor d_middle = mlp_grad(params, stash, std::move(d_out), work, follow);
  attention_grad(params, stash, d_middle, work, follow);

  work.attn_normed = stash.attn_normed.defined()
                         ? std::move(stash.attn_normed)
                         : attn_norm_.recompute(params, stash.input, stash.input_stats);
  at::Tensor d = group_.reduce_rows(qkv_.input_grad(params, work.d_qkv));
  d = attn_norm_.grad(params, std::move(d), stash.input, stash.input_stats, work.d_attn_norm);
  return d.add_(d_middle);
}

at::Tensor Block::mlp_grad(const at::Tensor& params, BlockStash& s, at::Tensor d_out,
                           WgradInputs& work, WgradTiming follow) const {
  work.d_down_bias = down_.bias_grad(d_out);
  work.product = s.product.defined() ? std::move(s.product) : activate(activation_, s.gate_up);
  at::Tensor rows = group_.gather_rows(d_out);
  at::Tensor d_product = down_.input_grad(params, rows);
  work.d_out = follow == WgradTiming::kImmediate ? rows : d_out;
  rows.reset();
  work.d_gate_up = activate_grad(activation_, s.gate_up, std::move(d_product));
  s.gate_up.reset();
  work.d_gate_up_bias = gate_up_.bias_grad(work.d_gate_up);

  work.mlp_normed = s.mlp_normed.defined() ? std::move(s.mlp_normed)
                                           : mlp_norm_.recompute(params, s.middle, s.middle_stats);
  at::Tensor d = group_.reduce_rows(gate_up_.input_grad(params, work.d_gate_up));
  d = mlp_norm_.grad(params, std::move(d), s.middle, s.middle_stats, work.d_mlp_norm);
  s.middle.reset();
  s.middle_stats = {};
  return d.add_(d_out);
}

void Block::attention_grad(const at::Tensor& params, BlockStash& s, const at::Tensor& d_middle,
                           WgradInputs& work, WgradTiming follow) const {
  work.d_attn_out_bias = attn_out_.bias_grad(d_middle);
  work.attn_out = std::move(s.attn_out);
  at::Tensor rows = group_.gather_rows(d_middle);
  at::Tensor d_attn = attn_out_.input_grad(params, rows);
  work.d_middle = follow == WgradTiming::kImmediate ? rows : d_middle;
  rows.reset();
  work.d_qkv = attention_.grad(params, std::move(s.qkv), work.attn_out, std::move(s.attn_lse),
                               std::move(d_attn), work.d_head_norms);
  work.d_qkv_bias = qkv_.bias_grad(work.d_qkv);
}

void Block::weight_grad(WgradInputs work, const at::Tensor& grads, bool is_first) const {
  const auto all_rows = [&](at::Tensor x) {
    return x.size(0) == tokens_ ? x : group_.gather_rows(x);
  };
  const auto add = [&](const Linear& linear, at::Tensor& d_out, at::Tensor& input) {
    const at::Tensor d = all_rows(std::move(d_out));
    const at::Tensor x = all_rows(std::move(input));
    linear.add_weight_grad(grads, d, x, is_first);
  };
  add(qkv_, work.d_qkv, work.attn_normed);
  add(attn_out_, work.d_middle, work.attn_out);
  add(gate_up_, work.d_gate_up, work.mlp_normed);
  add(down_, work.d_out, work.product);
  qkv_.add_bias_grad(grads, work.d_qkv_bias, is_first);
  attn_out_.add_bias_grad(grads, work.d_attn_out_bias, is_first);
  gate_up_.add_bias_grad(grads, work.d_gate_up_bias, is_first);
  down_.add_bias_grad(grads, work.d_down_bias, is_first);
  attn_norm_.add_grads(work.d_attn_norm, grads, is_first);
  mlp_norm_.add_grads(work.d_mlp_norm, grads, is_first);
  attention_.add_grads(work.d_head_norms, grads, is_first);
}

}  // namespace lockstep::nn
