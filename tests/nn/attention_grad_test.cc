#include "lockstep/nn/attention_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/model/unit_bytes.h"
#include "lockstep/tensor/memory.h"
#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

struct GradSizes {
  std::int64_t batch, seq, heads, kv_heads, dim;
};

// Slices of one buffer, as a block has them.
HeadTensors slices(const at::Tensor& all, const GradSizes& n) {
  return {all.narrow(2, 0, n.heads), all.narrow(2, n.heads, n.kv_heads),
          all.narrow(2, n.heads + n.kv_heads, n.kv_heads)};
}
at::Tensor buffer(const char* name, const GradSizes& n) {
  return random(name, {n.batch, n.seq, n.heads + 2 * n.kv_heads, n.dim}, at::kBFloat16, 2.0);
}

// The formulas in f64, [batch, heads, seq, dim], and how far roundings to bf16 may carry: u of each
// result, of what the probabilities and the gradients of scores are multiplied with, and of `out`,
// which enters every gradient of a query's scores.
struct Truth64 {
  at::Tensor out, lse, d_q, d_k, d_v, q_bound, k_bound, v_bound;

  static at::Tensor first(const at::Tensor& x) { return x.to(at::kDouble).transpose(1, 2); }
  static at::Tensor repeated(const at::Tensor& x, std::int64_t heads) {
    return first(x).repeat_interleave(heads / x.size(2), 1);
  }
  // Of the heads of queries that share one of keys.
  static at::Tensor summed(const at::Tensor& x, std::int64_t kv_heads) {
    return x.view({x.size(0), kv_heads, -1, x.size(2), x.size(3)}).sum(2);
  }

  Truth64(const HeadTensors& of, const at::Tensor& d_out, const GradSizes& n) {
    const double u = std::ldexp(1.0, -8), scale = 1 / std::sqrt(static_cast<double>(n.dim));
    const at::Tensor q = first(of.q), k = repeated(of.k, n.heads), v = repeated(of.v, n.heads),
                     d = first(d_out);
    const at::Tensor seen = at::ones({n.seq, n.seq}, at::kDouble).tril();
    const at::Tensor scores =
        (at::matmul(q, k.transpose(2, 3)) * scale).masked_fill(seen.eq(0), -1e30);
    lse = scores.logsumexp(3);
    const at::Tensor p = (scores - lse.unsqueeze(3)).exp() * seen;
    out = at::matmul(p, v);
    const at::Tensor delta = (d * out).sum(3, true), sizes = (d * out).abs().sum(3, true);
    const at::Tensor ds = p * (at::matmul(d, v.transpose(2, 3)) - delta) * scale;
    const at::Tensor ds_bound = u * (ds.abs() + p * sizes * scale), pt = p.transpose(2, 3);
    d_q = at::matmul(ds, k);
    d_k = summed(at::matmul(ds.transpose(2, 3), q), n.kv_heads);
    d_v = summed(at::matmul(pt, d), n.kv_heads);
    q_bound = u * d_q.abs() + at::matmul(ds_bound, k.abs());
    k_bound = u * d_k.abs() + summed(at::matmul(ds_bound.transpose(2, 3), q.abs()), n.kv_heads);
    v_bound = u * d_v.abs() + u * summed(at::matmul(pt, d.abs()), n.kv_heads);
  }
};

void expect_within(const at::Tensor& got, const at::Tensor& exact, const at::Tensor& bound) {
  // A hundredth for roundings of f32 and for products of two errors.
  const at::Tensor excess = (Truth64::first(got) - exact).abs() - 1.01 * bound - 1e-6;
  EXPECT_LE(excess.max().item<double>(), 0);
}

class AttentionGrad : public testing::TestWithParam<GradSizes> {};

TEST_P(AttentionGrad, IsWithinTheRoundingsItNames) {
  const GradSizes n = GetParam();
  const HeadTensors of = slices(buffer("qkv", n), n);
  const at::Tensor d_out = random("d", {n.batch, n.seq, n.heads, n.dim}, at::kBFloat16);
  const Truth64 truth(of, d_out, n);
  const at::Tensor out = truth.out.transpose(1, 2).to(at::kBFloat16).contiguous();
  const at::Tensor lse = truth.lse.to(at::kFloat);
  const at::Tensor into = at::full_like(buffer("qkv", n), kNan);
  const HeadTensors d = slices(into, n);
  tensor::MemoryAccount account;
  {
    const tensor::ChargeTo charge(account);
    attention_grad(of, out, lse, d_out, d);
  }
  EXPECT_EQ(account.peak(), 4 * model::AttentionTiles(n.seq, n.dim).floats());
  expect_within(d.q, truth.d_q, truth.q_bound);
  expect_within(d.k, truth.d_k, truth.k_bound);
  expect_within(d.v, truth.d_v, truth.v_bound);

  const at::Tensor again = at::empty_like(into);
  attention_grad(of, out, lse, d_out, slices(again, n));
  EXPECT_TRUE(at::equal(again, into));
}

// One token; whole tiles and ragged ones of queries and of keys; heads that share keys.
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGrad,
                         testing::Values(GradSizes{2, 1, 2, 2, 16}, GradSizes{2, 33, 4, 2, 16},
                                         GradSizes{1, 128, 3, 1, 32}, GradSizes{1, 300, 2, 1, 24},
                                         GradSizes{1, 1100, 2, 2, 8}));

}  // namespace
}  // namespace lockstep::nn
