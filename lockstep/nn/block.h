// A transformer block as a pair of passes written out by hand, so that every tensor it makes has
// one owner and a known end. Which norm and activation it has, whether biases, norms of heads,
// rotary positions, are traits of the model (model::ModelConfig). The forward pass keeps what
// `BlockStash` names; the backward pass is cut in two: the gradient of the input now, the gradients
// of the weights whenever the program says (zero-bubble schedules, Qi et al., arXiv 2401.10241).
//
//   T tokens of one microbatch (batch x seq), h hidden, q = heads x head_dim, k = kv_heads x
//   head_dim, f width of the MLP, g = 2f with a gate and f without, a heads; q, k, f, g, a: this
//   rank's share. P rows of the path between the parts that tensor parallelism cuts: T, or T / t
//   under sequence parallelism (tensor_group.h). Activations are [P, h], contiguous.
//
// Objects are immutable; several threads may call one with different tensors, where its group is of
// one rank. No pass uses LibTorch's autograd; callers need no guard, because nothing here requires
// a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/rope.h"
#include "lockstep/nn/tensor_group.h"

namespace lockstep::nn {

// What a block keeps for its backward pass: the stash of its list (parts/unit_passes.h). A
// dropped one is undefined and rebuilt when it is needed.
struct BlockStash {
  at::Tensor input;        // [P, h]
  RowStats input_stats;    // [P, 1] each
  at::Tensor attn_normed;  // [P, h], may be dropped
  at::Tensor qkv;          // [T, q + 2k], after the rotation unless heads have norms
  at::Tensor attn_out;     // [T, q]
  at::Tensor attn_lse;     // [batch, a, seq], f32 or the compute type if that is wider
  at::Tensor middle;       // [P, h]: input of the second norm
  RowStats middle_stats;   // [P, 1] each
  at::Tensor mlp_normed;   // [P, h], may be dropped
  at::Tensor gate_up;      // [T, g]
  at::Tensor product;      // [T, f], may be dropped
};

// What W needs: operands of each weight's product, and finished gradients of norms and biases (f32
// or wider). Of these, what every rank holds is a summand over the tensor ranks under sequence
// parallelism; the norms of heads are so without it too.
struct WgradInputs {
  at::Tensor attn_normed, d_qkv;     // [P, h], [T, q + 2k]
  at::Tensor attn_out, d_middle;     // [T, q], [P, h] or when W follows at once [T, h]
  at::Tensor mlp_normed, d_gate_up;  // [P, h], [T, g]
  at::Tensor product, d_out;         // [T, f], [P, h] or when W follows at once [T, h]
  NormGrads d_attn_norm, d_mlp_norm;
  Attention::Grads d_head_norms;
  at::Tensor d_qkv_bias, d_attn_out_bias, d_gate_up_bias, d_down_bias;  // undefined without biases
};

// When the weights' gradients follow those of the input. At once: the work keeps rows that were
// gathered on the way. Later: it keeps the path's rows, and W gathers them again. Same bits.
enum class WgradTiming : std::uint8_t { kImmediate, kLater };

class Block {
 public:
  // `flat` places this rank's share of the parameters of `unit` in the buffers that the passes
  // take. `rope` must outlive the block. REQUIRES: model::check_unit_bytes(config, seq).ok(), a
  // group whose size divides heads, kv_heads and ffn.
  Block(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
        std::int64_t batch, std::int64_t seq, model::Drop drop, const Rope& rope,
        TensorGroup group = {});

  // The output [P, h]. `params` is the unit's flat buffer.
  at::Tensor forward(const at::Tensor& params, at::Tensor input) const;
  // The same, keeping the stash. The output is the same bit for bit.
  at::Tensor forward(const at::Tensor& params, at::Tensor input, BlockStash& stash) const;
  // The stash alone, from the input: what `forward` would have kept, without the last product.
  BlockStash recompute(const at::Tensor& params, at::Tensor input) const;

  // Gradient of the input from the gradient of the output. Takes both arguments over: what W does
  // not need is released as soon as it is used.
  at::Tensor input_grad(const at::Tensor& params, BlockStash stash, at::Tensor d_out,
                        WgradInputs& work, WgradTiming follow = WgradTiming::kLater) const;

  // Writes (is_first) or adds the weights' gradients to `grads`, the unit's flat gradient buffer.
  // Gaps are not touched. Releases each operand as soon as it is used.
  void weight_grad(WgradInputs work, const at::Tensor& grads, bool is_first) const;

 private:
  // The forward pass up to `middle`, from there to `gate_up`, and whole. Without `keep` a tensor is
  // released after its last use.
  void attend(const at::Tensor& params, BlockStash& s, bool keep) const;
  void widen(const at::Tensor& params, BlockStash& s, bool keep) const;
  at::Tensor run(const at::Tensor& params, BlockStash& s, bool keep) const;

  // residual + x weight^T, summed over the group, + bias, once.
  at::Tensor finish_part(const at::Tensor& params, const Linear& linear, const at::Tensor& x,
                         const at::Tensor& residual) const;

  // Fill `work` from d_out to the gradient of `middle`, which the first returns, and from there to
  // d_qkv.
  at::Tensor mlp_grad(const at::Tensor& params, BlockStash& s, at::Tensor d_out, WgradInputs& work,
                      WgradTiming follow) const;
  void attention_grad(const at::Tensor& params, BlockStash& s, const at::Tensor& d_middle,
                      WgradInputs& work, WgradTiming follow) const;

  TensorGroup group_;
  std::int64_t tokens_;
  model::Drop drop_;
  model::Activation activation_;
  Norm attn_norm_, mlp_norm_;
  Attention attention_;
  Linear qkv_, attn_out_, gate_up_, down_;
};

}  // namespace lockstep::nn
