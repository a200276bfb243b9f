// Causal attention of a block from the result of its query, key and value projections, [T, q + 2k]
// (symbols as in block.h): norms of every head's query and key where the model has them, rotary
// positions where it has those, and LibTorch's flash kernel. Scores are divided by the root of
// head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/nn/norm.h"
#include "lockstep/nn/rope.h"

namespace lockstep::nn {

// Immutable; any thread.
class Attention {
 public:
  // `tp` ranks share the heads. `rope` must outlive this. REQUIRES: `unit` is a block whose
  // attention looks back to all of seq tokens, without a cap; tp divides heads and kv_heads.
  Attention(const model::ModelConfig& config, const model::Unit& unit,
            const model::FlatLayout& flat, std::int64_t batch, std::int64_t seq, std::int64_t tp,
            const Rope& rope);

  std::int64_t query_width() const { return heads_ * head_dim_; }              // q
  std::int64_t width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }  // q + 2k

  struct Result {
    at::Tensor out;  // [T, q]
    at::Tensor lse;  // [batch, a, seq], f32 or the compute type if that is wider
  };
  // Without norms queries and keys are turned in place; with them `qkv` stays as it is, and copies
  // of queries and keys live for a moment here and again in grad().
  Result forward(const at::Tensor& params, const at::Tensor& qkv) const;

  // Finished gradients of the norms over heads, summands over the tensor ranks; undefined without.
  struct Grads {
    NormGrads q, k;
  };
  // [T, q + 2k] from what forward() left in `qkv`, what it returned and the gradient of `out`.
  // Takes all but `out` over and releases each as soon as it is used.
  at::Tensor grad(const at::Tensor& params, at::Tensor qkv, const at::Tensor& out, at::Tensor lse,
                  at::Tensor d_out, Grads& made) const;

  void add_grads(const Grads& made, const at::Tensor& grads, bool is_first) const;

 private:
  struct Norms {
    Norm q, k;
  };
  struct Heads {
    at::Tensor q, k, v;  // [batch, seq, heads, head_dim]
    RowStats q_stats = {}, k_stats = {};
    at::Tensor all =
        {};  // [T, q + 2k] if the three are slices of gradients that are finished in it
  };

  Heads split(const at::Tensor& qkv) const;  // views
  Heads read(const at::Tensor& params, const at::Tensor& qkv) const;
  at::Tensor by_head(const at::Tensor& x) const;  // a view of [T, q]
  // Gradients of what attention reads; LibTorch's kernel for f32 and wider, attention_grad.h for
  // bf16.
  Heads wide_grads(const Heads& x, const at::Tensor& out, const at::Tensor& lse,
                   const at::Tensor& d_out) const;
  Heads narrow_grads(const Heads& x, const at::Tensor& out, const at::Tensor& lse,
                     const at::Tensor& d_out) const;
  void apply_rope(const at::Tensor& x) const;
  void apply_rope_backward(const at::Tensor& x) const;

  std::int64_t batch_, seq_, heads_, kv_heads_, head_dim_;
  const Rope* rope_;
  std::optional<Norms> norms_;
};

}  // namespace lockstep::nn
