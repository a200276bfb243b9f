#include "lockstep/nn/attention_grad.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/nn/vector_math.h"
#include "lockstep/nn/wide_product.h"

namespace lockstep::nn {
namespace {

using Element = at::BFloat16;

// One head of one sequence: [seq, head_dim].
struct HeadRows {
  Element* data;
  std::int64_t stride;  // from row to row
  HeadRows(const at::Tensor& x, std::int64_t sequence, std::int64_t head)
      : data(static_cast<Element*>(x.data_ptr()) + sequence * x.stride(0) + head * x.stride(2)),
        stride(x.stride(1)) {}
  Element* row(std::int64_t i) const { return data + i * stride; }
  NarrowMatrix from(std::int64_t i) const { return {row(i), stride, /*by_columns=*/false}; }
  NarrowMatrix transposed_from(std::int64_t i) const { return {row(i), stride, true}; }
};

LS_VECTOR_CLONES float dot(const Element* a, const Element* b, std::int64_t n) {
  std::array<float, 16> lanes = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::int64_t lane = 0; lane < 16; ++lane)
      lanes[lane] += static_cast<float>(a[i + lane]) * static_cast<float>(b[i + lane]);
  float sum = 0;
  for (; i < n; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  for (const float lane : lanes) sum += lane;
  return sum;
}

LS_VECTOR_CLONES void round_row(const float* from, std::int64_t n, Element* into) {
  for (std::int64_t i = 0; i < n; ++i) into[i] = rounded_to<Element>(from[i]);
}

// Of one query and the first `seen` of `n` keys: probabilities p = e^(scale s - lse), and the
// gradient of their scores, p (d_p - delta) scale, where delta is the sum of p d_p over all keys of
// the query.
struct QueryRow {
  float scale, lse, delta;
};
LS_VECTOR_CLONES void score_grads(const QueryRow query, const float* scores, const float* d_probs,
                                  std::int64_t seen, std::int64_t n, Element* probs,
                                  Element* d_scores) {
  const std::int64_t vectors = std::min(n, (seen + 15) / 16 * 16);  // what is too much ends as zero
  for (std::int64_t i = 0; i < vectors; ++i) {
    const float p = exponential(query.scale * scores[i] - query.lse);
    probs[i] = rounded_to<Element>(p);
    d_scores[i] = rounded_to<Element>(p * (d_probs[i] - query.delta) * query.scale);
  }
  for (std::int64_t i = seen; i < n; ++i) probs[i] = d_scores[i] = rounded_to<Element>(0.0F);
}

// The parts of one thread's memory.
struct Tiles {
  float *scores, *d_probs, *d_k, *d_v, *d_q, *delta;
  Element *probs, *d_scores;
  Tiles(float* home, const model::AttentionTiles& t)
      : scores(home),
        d_probs(scores + t.queries * t.keys),
        d_k(d_probs + t.queries * t.keys),
        d_v(d_k + t.seq * t.head_dim),
        d_q(d_v + t.seq * t.head_dim),
        delta(d_q + t.queries * t.head_dim),
        probs(reinterpret_cast<Element*>(delta + t.queries)),
        d_scores(probs + t.queries * t.keys) {}
};

class HeadGrad {
 public:
  HeadGrad(const HeadTensors& of, const at::Tensor& out, const at::Tensor& lse,
           const at::Tensor& d_out, const HeadTensors& into, const model::AttentionTiles& tiles)
      : of_(of), out_(out), lse_(lse), d_out_(d_out), into_(into), t_(tiles) {}

  // Of one head of keys and the heads of queries that look at it.
  void run(std::int64_t sequence, std::int64_t kv_head, float* home) const {
    const Tiles tiles(home, t_);
    std::fill_n(tiles.d_k, t_.seq * t_.head_dim, 0.0F);
    std::fill_n(tiles.d_v, t_.seq * t_.head_dim, 0.0F);
    const std::int64_t share = of_.q.size(2) / of_.k.size(2);
    for (std::int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head)
      for (std::int64_t begin = 0; begin < t_.seq; begin += t_.queries)
        add_queries(sequence, head, kv_head, begin, tiles);
    const HeadRows d_k(into_.k, sequence, kv_head), d_v(into_.v, sequence, kv_head);
    for (std::int64_t i = 0; i < t_.seq; ++i) {
      round_row(tiles.d_k + i * t_.head_dim, t_.head_dim, d_k.row(i));
      round_row(tiles.d_v + i * t_.head_dim, t_.head_dim, d_v.row(i));
    }
  }

 private:
  void add_queries(std::int64_t sequence, std::int64_t head, std::int64_t kv_head,
                   std::int64_t begin, const Tiles& tiles) const {
    const std::int64_t n = std::min(t_.queries, t_.seq - begin), d = t_.head_dim;
    const HeadRows q(of_.q, sequence, head), k(of_.k, sequence, kv_head),
        v(of_.v, sequence, kv_head), d_out(d_out_, sequence, head), out(out_, sequence, head),
        d_q(into_.q, sequence, head);
    for (std::int64_t i = 0; i < n; ++i)
      tiles.delta[i] = dot(out.row(begin + i), d_out.row(begin + i), d);
    for (std::int64_t key = 0; key < begin + n; key += t_.keys) {
      const std::int64_t keys = std::min(t_.keys, begin + n - key);
      multiply({n, keys, d}, q.from(begin), k.transposed_from(key), tiles.scores, keys, 0.0F);
      multiply({n, keys, d}, d_out.from(begin), v.transposed_from(key), tiles.d_probs, keys, 0.0F);
      differentiate(sequence, head, begin, n, key, keys, tiles);
      const NarrowMatrix probs = {tiles.probs, keys, true}, d_scores = {tiles.d_scores, keys, true};
      multiply({keys, d, n}, probs, d_out.from(begin), tiles.d_v + key * d, d, 1.0F);
      multiply({keys, d, n}, d_scores, q.from(begin), tiles.d_k + key * d, d, 1.0F);
      multiply({n, d, keys}, {tiles.d_scores, keys, false}, k.from(key), tiles.d_q, d,
               key == 0 ? 0.0F : 1.0F);
    }
    for (std::int64_t i = 0; i < n; ++i) round_row(tiles.d_q + i * d, d, d_q.row(begin + i));
  }

  void differentiate(std::int64_t sequence, std::int64_t head, std::int64_t begin, std::int64_t n,
                     std::int64_t key, std::int64_t keys, const Tiles& tiles) const {
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(t_.head_dim)));
    const float* lse = lse_.const_data_ptr<float>() + sequence * lse_.stride(0) +
                       head * lse_.stride(1) + begin * lse_.stride(2);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t seen = std::clamp<std::int64_t>(begin + i + 1 - key, 0, keys);
      score_grads({scale, lse[i * lse_.stride(2)], tiles.delta[i]}, tiles.scores + i * keys,
                  tiles.d_probs + i * keys, seen, keys, tiles.probs + i * keys,
                  tiles.d_scores + i * keys);
    }
  }

  const HeadTensors& of_;
  const at::Tensor &out_, &lse_, &d_out_;
  const HeadTensors& into_;
  const model::AttentionTiles& t_;
};

}  // namespace

void attention_grad(const HeadTensors& of, const at::Tensor& out, const at::Tensor& lse,
                    const at::Tensor& d_out, const HeadTensors& into) {
  for (const at::Tensor* x : {&of.q, &of.k, &of.v, &out, &d_out, &into.q, &into.k, &into.v})
    LS_CHECK(x->is_cpu() && x->scalar_type() == at::kBFloat16 && x->stride(3) == 1,
             "heads of bf16 on a CPU, not of ", x->scalar_type());
  const std::int64_t kv_heads = of.k.size(2), heads = of.q.size(0) * kv_heads;
  const model::AttentionTiles tiles(of.q.size(1), of.q.size(3));
  const at::Tensor homes = at::empty({at::get_num_threads(), tiles.floats()}, at::kFloat);
  const HeadGrad grad(of, out, lse, d_out, into, tiles);
  at::parallel_for(0, heads, 1, [&](std::int64_t begin, std::int64_t end) {
    float* home = homes.mutable_data_ptr<float>() + at::get_thread_num() * tiles.floats();
    for (std::int64_t i = begin; i < end; ++i) grad.run(i / kv_heads, i % kv_heads, home);
  });
}

}  // namespace lockstep::nn
