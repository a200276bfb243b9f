#include "lockstep/nn/scored_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/vector_clones.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/nn/vector_math.h"
#include "lockstep/nn/wide_rows.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

using tensor::view_of;

// Lanes, so that sums are vectors and their order is one for every instruction set.
constexpr std::int64_t kLanes = 16;
template <class W, class Term>
LS_INTO_CLONES W sum_of(std::int64_t n, Term term) {
  std::array<W, kLanes> lanes = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  W sum = 0;
  for (; i < n; ++i) sum += term(i);
  for (const W lane : lanes) sum += lane;
  return sum;
}

// Of a query, `x` being its products with the keys it sees.
template <class W>
struct Row {
  W scale, cap;
  LS_INTO_CLONES W tangent(W x) const { return hyperbolic_tangent(x * scale / cap); }
};

// Products become probabilities; returns the logarithm of the sum of exponentials.
template <class W>
LS_INTO_CLONES W softmax_span(const Row<W> row, W* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    x[i] = row.cap > 0 ? row.cap * row.tangent(x[i]) : row.scale * x[i];
  W most = x[0];
  for (std::int64_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (std::int64_t i = 0; i < n; ++i) x[i] = exponential(x[i] - most);
  const W sum = sum_of<W>(n, [x](std::int64_t i) { return x[i]; });
  for (std::int64_t i = 0; i < n; ++i) x[i] /= sum;
  return most + std::log(sum);
}
LS_VECTOR_CLONES float softmax(const Row<float> row, float* x, std::int64_t n) {
  return softmax_span(row, x, n);
}
double softmax(const Row<double> row, double* x, std::int64_t n) { return softmax_span(row, x, n); }

// Products become probabilities p, and their gradients those of the products: p (d_p - delta),
// where delta is the sum of p d_p, times the slope of what made scores of products.
template <class W>
LS_INTO_CLONES void grad_span(const Row<W> row, W lse, W delta, W* x, W* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const W t = row.cap > 0 ? row.tangent(x[i]) : 0;
    const W p = exponential((row.cap > 0 ? row.cap * t : row.scale * x[i]) - lse);
    x[i] = p;
    d[i] = p * (d[i] - delta) * (row.scale * (1 - t * t));
  }
}
LS_VECTOR_CLONES void grad(const Row<float> row, float lse, float delta, float* x, float* d,
                           std::int64_t n) {
  grad_span(row, lse, delta, x, d, n);
}
void grad(const Row<double> row, double lse, double delta, double* x, double* d, std::int64_t n) {
  grad_span(row, lse, delta, x, d, n);
}

template <class W, class T>
LS_INTO_CLONES W dot_span(const T* a, const T* b, std::int64_t n) {
  return sum_of<W>(n, [=](std::int64_t i) { return static_cast<W>(a[i]) * static_cast<W>(b[i]); });
}
LS_VECTOR_CLONES float dot(const at::BFloat16* a, const at::BFloat16* b, std::int64_t n) {
  return dot_span<float>(a, b, n);
}
LS_VECTOR_CLONES float dot(const float* a, const float* b, std::int64_t n) {
  return dot_span<float>(a, b, n);
}
double dot(const double* a, const double* b, std::int64_t n) { return dot_span<double>(a, b, n); }

// [seq, head_dim] of one head of one sequence.
at::Tensor head_of(const at::Tensor& x, std::int64_t sequence, std::int64_t head) {
  return view_of(x, {x.size(1), x.size(3)}, {x.stride(1), x.stride(3)},
                 sequence * x.stride(0) + head * x.stride(2));
}
at::Tensor rows_of(const at::Tensor& x, std::int64_t begin, std::int64_t n) {
  return view_of(x, {n, x.size(1)}, x.strides(), begin * x.stride(0));
}
at::Tensor turned(const at::Tensor& x) {
  return view_of(x, {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, 0);
}

// Some queries of one head and the keys that any of them sees.
struct Span {
  std::int64_t begin, queries, first_key, keys;
};

// One pass over all heads. W: what scores are computed in; T: what heads consist of.
template <class W, class T>
class ScoredPass {
 public:
  ScoredPass(const HeadTensors& of, const Scores& scores, std::int64_t elements)
      : of_(of),
        scores_(scores),
        tiles_(of.q.size(1), of.q.size(3), scores.window),
        home_(at::empty({elements}, of.q.options().dtype(wide_type_of(of.q)))) {}

  void forward(const at::Tensor& out, const at::Tensor& lse) {
    const at::Tensor scores = tile(), q = copy(tiles_.queries), sum = copy(tiles_.queries);
    const at::Tensor k_copy = copy(tiles_.seq), v_copy = copy(tiles_.seq);
    for_kv_heads([&](std::int64_t b, std::int64_t kv_head) {
      const at::Tensor k = wide(head_of(of_.k, b, kv_head), k_copy);
      const at::Tensor v = wide(head_of(of_.v, b, kv_head), v_copy);
      for_queries(kv_head, [&](std::int64_t head, const Span& at) {
        const at::Tensor probs = products(scores, wide(queries_of(of_.q, b, head, at), q), k, at);
        W* const into = lse_of(lse, b, head);
        for_rows(at, [&](std::int64_t row, std::int64_t first, std::int64_t seen) {
          W* const x = clear(probs, at, row, first, seen);
          into[at.begin + row] = softmax(row_, x, seen);
        });
        write(queries_of(out, b, head, at), sum,
              [&](at::Tensor to) { at::mm_out(to, probs, rows_of(v, at.first_key, at.keys)); });
      });
    });
  }

  void backward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out,
                const HeadTensors& into) {
    const at::Tensor scores = tile(), d_scores = tile();
    const at::Tensor q_copy = copy(tiles_.queries), d_copy = copy(tiles_.queries),
                     d_q = copy(tiles_.queries);
    const at::Tensor k_copy = copy(tiles_.seq), v_copy = copy(tiles_.seq), k_sum = copy(tiles_.seq),
                     v_sum = copy(tiles_.seq);
    for_kv_heads([&](std::int64_t b, std::int64_t kv_head) {
      const at::Tensor k = wide(head_of(of_.k, b, kv_head), k_copy);
      const at::Tensor v = wide(head_of(of_.v, b, kv_head), v_copy);
      const at::Tensor d_k = k_sum.defined() ? k_sum : head_of(into.k, b, kv_head);
      const at::Tensor d_v = v_sum.defined() ? v_sum : head_of(into.v, b, kv_head);
      d_k.zero_();
      d_v.zero_();
      for_queries(kv_head, [&](std::int64_t head, const Span& at) {
        const at::Tensor d_rows = queries_of(d_out, b, head, at);
        const at::Tensor q = wide(queries_of(of_.q, b, head, at), q_copy);
        const at::Tensor d = wide(d_rows, d_copy);
        const at::Tensor probs = products(scores, q, k, at);
        const at::Tensor d_probs = products(d_scores, d, v, at);
        const at::Tensor out_rows = queries_of(out, b, head, at);
        const W* const from = lse_of(lse, b, head);
        for_rows(at, [&](std::int64_t row, std::int64_t first, std::int64_t seen) {
          const T* const a = out_rows.template const_data_ptr<T>() + row * out_rows.stride(0);
          const T* const c = d_rows.template const_data_ptr<T>() + row * d_rows.stride(0);
          grad(row_, from[at.begin + row], dot(a, c, tiles_.head_dim),
               clear(probs, at, row, first, seen), clear(d_probs, at, row, first, seen), seen);
        });
        rows_of(d_v, at.first_key, at.keys).addmm_(turned(probs), d);
        rows_of(d_k, at.first_key, at.keys).addmm_(turned(d_probs), q);
        write(queries_of(into.q, b, head, at), d_q,
              [&](at::Tensor to) { at::mm_out(to, d_probs, rows_of(k, at.first_key, at.keys)); });
      });
      if (!k_sum.defined()) return;
      head_of(into.k, b, kv_head).copy_(k_sum);
      head_of(into.v, b, kv_head).copy_(v_sum);
    });
  }

 private:
  static constexpr bool kNarrow = sizeof(T) < sizeof(W);

  // Pieces of the scratch, one behind the other; of copies only where heads are narrow.
  at::Tensor piece(std::int64_t rows, std::int64_t columns) {
    const std::int64_t at = std::exchange(taken_, taken_ + rows * columns);
    return view_of(home_, {rows, columns}, {columns, 1}, at);
  }
  at::Tensor tile() { return piece(tiles_.queries, tiles_.keys); }
  at::Tensor copy(std::int64_t rows) {
    return kNarrow ? piece(rows, tiles_.head_dim) : at::Tensor();
  }
  // `x`, or its copy.
  static at::Tensor wide(const at::Tensor& x, const at::Tensor& into) {
    if (!kNarrow) return x;
    at::Tensor made = rows_of(into, 0, x.size(0));
    return made.copy_(x);
  }
  // Calls make(into), where `into` is what `to` becomes a copy of, if heads are narrow.
  static void write(const at::Tensor& to, const at::Tensor& sum, auto make) {
    if (!kNarrow) return make(to);
    const at::Tensor made = rows_of(sum, 0, to.size(0));
    make(made);
    to.copy_(made);
  }

  at::Tensor queries_of(const at::Tensor& x, std::int64_t b, std::int64_t head,
                        const Span& at) const {
    return rows_of(head_of(x, b, head), at.begin, at.queries);
  }
  W* lse_of(const at::Tensor& lse, std::int64_t b, std::int64_t head) const {
    return lse.mutable_data_ptr<W>() + (b * of_.q.size(2) + head) * tiles_.seq;
  }
  // [queries, keys] of a tile, in which rows lie side by side.
  static at::Tensor products(const at::Tensor& tile, const at::Tensor& rows, const at::Tensor& keys,
                             const Span& at) {
    at::Tensor made = view_of(tile, {at.queries, at.keys}, {at.keys, 1}, 0);
    return at::mm_out(made, rows, turned(rows_of(keys, at.first_key, at.keys)));
  }
  // Of a query's row, what it sees; the rest becomes zero.
  static W* clear(const at::Tensor& tile, const Span& at, std::int64_t row, std::int64_t first,
                  std::int64_t seen) {
    W* const x = tile.mutable_data_ptr<W>() + row * at.keys;
    std::fill(x, x + first, W{0});
    std::fill(x + first + seen, x + at.keys, W{0});
    return x + first;
  }

  void for_kv_heads(auto fn) const {
    for (std::int64_t b = 0; b < of_.q.size(0); ++b)
      for (std::int64_t kv_head = 0; kv_head < of_.k.size(2); ++kv_head) fn(b, kv_head);
  }
  // All queries that look at a head of keys.
  void for_queries(std::int64_t kv_head, auto fn) const {
    const std::int64_t share = of_.q.size(2) / of_.k.size(2), seq = tiles_.seq;
    for (std::int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head)
      for (std::int64_t begin = 0; begin < seq; begin += tiles_.queries) {
        const std::int64_t n = std::min(tiles_.queries, seq - begin);
        const std::int64_t first = first_key(begin);
        fn(head, Span{begin, n, first, begin + n - first});
      }
  }
  std::int64_t first_key(std::int64_t query) const {
    return scores_.window == 0 ? 0 : std::max<std::int64_t>(0, query - scores_.window + 1);
  }
  // Calls fn(row, first key that its query sees, how many), both in the span's keys.
  void for_rows(const Span& at, auto fn) const {
    at::parallel_for(0, at.queries, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t first = first_key(at.begin + row);
        fn(row, first - at.first_key, at.begin + row + 1 - first);
      }
    });
  }

  const HeadTensors& of_;
  const Scores& scores_;
  const model::ScoreTiles tiles_;
  const at::Tensor home_;
  const Row<W> row_ = {static_cast<W>(scores_.scale), static_cast<W>(scores_.cap)};
  std::int64_t taken_ = 0;
};

// Calls fn with a pass over heads of their type.
void for_type(const HeadTensors& of, const Scores& scores, bool backward, auto fn) {
  LS_CHECK(of.q.is_cpu() && of.q.stride(3) == 1, "heads on a CPU");
  const std::int64_t elements = model::ScoreTiles(of.q.size(1), of.q.size(3), scores.window)
                                    .elements(backward, is_narrow(of.q));
  if (of.q.scalar_type() == at::kBFloat16)
    return fn(ScoredPass<float, at::BFloat16>(of, scores, elements));
  if (of.q.scalar_type() == at::kFloat) return fn(ScoredPass<float, float>(of, scores, elements));
  LS_CHECK(of.q.scalar_type() == at::kDouble, "attention of ", of.q.scalar_type());
  fn(ScoredPass<double, double>(of, scores, elements));
}

// [batch, seq, heads, head_dim] of [T, heads x head_dim].
at::Tensor by_head(const at::Tensor& rows, const at::Tensor& like) {
  const std::int64_t row = rows.stride(0), seq = like.size(1), head_dim = like.size(3);
  return view_of(rows, like.sizes(), {seq * row, row, head_dim, 1}, 0);
}

}  // namespace

void scored_attention(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                      const at::Tensor& lse) {
  for_type(of, scores, /*backward=*/false,
           [&](auto pass) { pass.forward(by_head(out, of.q), lse); });
}

void scored_attention_grad(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                           const at::Tensor& lse, const at::Tensor& d_out,
                           const HeadTensors& into) {
  for_type(of, scores, /*backward=*/true,
           [&](auto pass) { pass.backward(by_head(out, of.q), lse, by_head(d_out, of.q), into); });
}

}  // namespace lockstep::nn
