#include "lockstep/nn/scored_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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

// Whether the keys at the queries' positions are in it.
bool has_own_keys(const model::AttentionBlock& block) {
  const auto& [queries, keys] = block;
  return keys.position <= queries.position &&
         queries.position + queries.count <= keys.position + keys.count;
}

// Adds a block's result to that of other keys; logarithms of sums of exponentials weigh both.
template <class W>
void merge(const W* block, W block_lse, W* sum, W& lse, std::int64_t n) {
  if (block_lse == -std::numeric_limits<W>::infinity()) return;  // it sees nothing there
  const W most = std::max(lse, block_lse);
  const W all = most + std::log(std::exp(lse - most) + std::exp(block_lse - most));
  const W old_share = std::exp(lse - all), share = std::exp(block_lse - all);
  for (std::int64_t i = 0; i < n; ++i) sum[i] = sum[i] * old_share + block[i] * share;
  lse = all;
}

// Some queries of one head and the keys that any of them sees, by row, and the first ones'
// positions.
struct Span {
  std::int64_t begin, queries, first_key, keys, position, first_key_position;
};

using Blocks = std::vector<model::AttentionBlock>;

// One pass over all heads. W: what scores are computed in; T: what heads consist of.
template <class W, class T>
class ScoredPass {
 public:
  ScoredPass(const HeadTensors& of, const Scores& scores, const Blocks& blocks, bool is_first,
             std::int64_t elements)
      : of_(of),
        scores_(scores),
        blocks_(blocks),
        is_first_(is_first),
        tiles_(of.k.size(1), of.q.size(3), scores.window),
        home_(at::empty({elements}, of.q.options().dtype(wide_type_of(of.q)))) {}

  void forward(const at::Tensor& out, const at::Tensor& lse) {
    const at::Tensor scores = tile(), q = copy(tiles_.queries);
    const at::Tensor sum = adds() ? piece(tiles_.queries, tiles_.head_dim) : copy(tiles_.queries);
    std::array<W, kMostQueries> block_lse;
    const at::Tensor k_copy = copy(tiles_.seq), v_copy = copy(tiles_.seq);
    for_kv_heads([&](std::int64_t b, std::int64_t kv_head) {
      const at::Tensor k = wide(head_of(of_.k, b, kv_head), k_copy);
      const at::Tensor v = wide(head_of(of_.v, b, kv_head), v_copy);
      for_queries(kv_head, [&](std::int64_t head, const Span& at, bool is_first) {
        const at::Tensor probs = products(scores, wide(queries_of(of_.q, b, head, at), q), k, at);
        W* const all = lse_of(lse, b, head) + at.begin;
        W* const into = is_first ? all : block_lse.data();
        for_rows(at, [&](std::int64_t row, std::int64_t first, std::int64_t seen) {
          W* const x = clear(probs, at, row, first, seen);
          into[row] = seen > 0 ? softmax(row_, x, seen) : -std::numeric_limits<W>::infinity();
        });
        const auto multiply = [&](at::Tensor to) {
          at::mm_out(to, probs, rows_of(v, at.first_key, at.keys));
        };
        const at::Tensor to = queries_of(out, b, head, at);
        if (is_first) return write(to, sum, multiply);
        multiply(rows_of(sum, 0, at.queries));
        for (std::int64_t row = 0; row < at.queries; ++row)
          merge(sum.template const_data_ptr<W>() + row * tiles_.head_dim, block_lse[row],
                to.template mutable_data_ptr<W>() + row * to.stride(0), all[row], tiles_.head_dim);
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
      const bool copies = is_narrow(into.k);
      const at::Tensor d_k = copies ? k_sum : head_of(into.k, b, kv_head);
      const at::Tensor d_v = copies ? v_sum : head_of(into.v, b, kv_head);
      d_k.zero_();
      d_v.zero_();
      for_queries(kv_head, [&](std::int64_t head, const Span& at, bool is_first) {
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
        const at::Tensor keys = rows_of(k, at.first_key, at.keys);
        at::Tensor to = queries_of(into.q, b, head, at);
        if (!is_first)
          to.addmm_(d_probs, keys);
        else
          write(to, d_q, [&](at::Tensor made) { at::mm_out(made, d_probs, keys); });
      });
      if (!copies) return;
      head_of(into.k, b, kv_head).copy_(k_sum);
      head_of(into.v, b, kv_head).copy_(v_sum);
    });
  }

 private:
  static constexpr bool kNarrow = sizeof(T) < sizeof(W);
  static constexpr std::int64_t kMostQueries = 128;  // of a tile
  // Whether some of the queries' results add up.
  bool adds() const { return !is_first_ || blocks_.size() > 1; }

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
    if (!is_narrow(to)) return make(to);
    const at::Tensor made = rows_of(sum, 0, to.size(0));
    make(made);
    to.copy_(made);
  }

  at::Tensor queries_of(const at::Tensor& x, std::int64_t b, std::int64_t head,
                        const Span& at) const {
    return rows_of(head_of(x, b, head), at.begin, at.queries);
  }
  W* lse_of(const at::Tensor& lse, std::int64_t b, std::int64_t head) const {
    return lse.mutable_data_ptr<W>() + (b * of_.q.size(2) + head) * of_.q.size(1);
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
  // All queries that look at a head of keys: fn(head, span, whether they have not yet seen a key).
  void for_queries(std::int64_t kv_head, auto fn) const {
    const std::int64_t share = of_.q.size(2) / of_.k.size(2);
    for (std::int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head)
      for (const model::AttentionBlock& block : blocks_) {
        const bool is_first = is_first_ && has_own_keys(block);
        for (std::int64_t i = 0; i < block.queries.count; i += tiles_.queries)
          if (const Span at = span_of(block, i); at.keys > 0) fn(head, at, is_first);
      }
  }
  // From the block's query `first` on.
  Span span_of(const model::AttentionBlock& block, std::int64_t first) const {
    const auto& [queries, keys] = block;
    const std::int64_t n = std::min(tiles_.queries, queries.count - first);
    const std::int64_t position = queries.position + first;
    const std::int64_t from =
        std::max(keys.position, model::keys_seen(position, scores_.window).begin);
    const std::int64_t to = std::min(keys.position + keys.count, position + n);
    return {queries.row + first, n, keys.row + from - keys.position, to - from, position, from};
  }
  // Calls fn(row, first key that its query sees, how many), both in the span's keys.
  void for_rows(const Span& at, auto fn) const {
    at::parallel_for(0, at.queries, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const model::KeyRange seen = model::keys_seen(at.position + row, scores_.window);
        const std::int64_t behind =
            at.first_key_position + at.keys;  // a query may see none of them
        const std::int64_t first = std::clamp(seen.begin, at.first_key_position, behind);
        fn(row, first - at.first_key_position, std::clamp(seen.end, first, behind) - first);
      }
    });
  }

  const HeadTensors& of_;
  const Scores& scores_;
  const Blocks& blocks_;
  const bool is_first_;
  const model::ScoreTiles tiles_;
  const at::Tensor home_;
  const Row<W> row_ = {static_cast<W>(scores_.scale), static_cast<W>(scores_.cap)};
  std::int64_t taken_ = 0;
};

// Calls fn with a pass over heads of their type.
void for_type(const HeadTensors& of, const Scores& scores, const Blocks& blocks, bool is_first,
              std::int64_t elements, auto fn) {
  LS_CHECK(of.q.is_cpu() && of.q.stride(3) == 1, "heads on a CPU");
  if (of.q.scalar_type() == at::kBFloat16)
    return fn(ScoredPass<float, at::BFloat16>(of, scores, blocks, is_first, elements));
  if (of.q.scalar_type() == at::kFloat)
    return fn(ScoredPass<float, float>(of, scores, blocks, is_first, elements));
  LS_CHECK(of.q.scalar_type() == at::kDouble, "attention of ", of.q.scalar_type());
  fn(ScoredPass<double, double>(of, scores, blocks, is_first, elements));
}

model::ScoreTiles tiles_of(const HeadTensors& of, const Scores& scores) {
  return {of.k.size(1), of.q.size(3), scores.window};
}
// Queries and keys of a rank that has whole sequences.
Blocks whole(const HeadTensors& of) {
  const model::PositionRun all = {0, 0, of.q.size(1)};
  return {{all, all}};
}

// [batch, seq, heads, head_dim] of [T, heads x head_dim].
at::Tensor by_head(const at::Tensor& rows, const at::Tensor& like) {
  const std::int64_t row = rows.stride(0), seq = like.size(1), head_dim = like.size(3);
  return view_of(rows, like.sizes(), {seq * row, row, head_dim, 1}, 0);
}

}  // namespace

void scored_attention(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                      const at::Tensor& lse) {
  const std::int64_t elements = tiles_of(of, scores).elements(/*backward=*/false, is_narrow(of.q));
  for_type(of, scores, whole(of), /*is_first=*/true, elements,
           [&](auto pass) { pass.forward(by_head(out, of.q), lse); });
}

Attended attention_over(const HeadTensors& of, const Scores& scores) {
  const std::int64_t seq = of.q.size(1), all = of.k.size(1), past = all - seq;
  const bool sees_all = scores.window == 0 || scores.window >= all;
  if (seq == 1 && scores.cap == 0) {
    const model::KeyRange seen = model::keys_seen(past, scores.window);
    const auto those = [&](const at::Tensor& x) { return x.narrow(1, seen.begin, seen.size()); };
    return attention_of_one({of.q, those(of.k), those(of.v)}, scores.scale);
  }
  const double usual = 1.0 / std::sqrt(static_cast<double>(of.q.size(3)));
  if (past == 0 && sees_all && scores.cap == 0 && scores.scale == usual) return attention(of);
  const auto wide = of.q.options().dtype(wide_type_of(of.q));
  const std::int64_t heads = of.q.size(2);
  Attended made = {at::empty({seq, heads * of.q.size(3)}, of.q.options()),
                   at::empty({1, heads, seq}, wide)};
  const Blocks blocks = {{{0, past, seq}, {0, 0, all}}};
  const std::int64_t elements = tiles_of(of, scores).elements(/*backward=*/false, is_narrow(of.q));
  for_type(of, scores, blocks, /*is_first=*/true, elements,
           [&](auto pass) { pass.forward(by_head(made.out, of.q), made.lse); });
  return made;
}

void scored_attention_grad(const HeadTensors& of, const Scores& scores, const at::Tensor& out,
                           const at::Tensor& lse, const at::Tensor& d_out,
                           const HeadTensors& into) {
  const std::int64_t elements = tiles_of(of, scores).elements(/*backward=*/true, is_narrow(of.q));
  for_type(of, scores, whole(of), /*is_first=*/true, elements,
           [&](auto pass) { pass.backward(by_head(out, of.q), lse, by_head(d_out, of.q), into); });
}

void add_attention(const HeadTensors& of, const Scores& scores, const Blocks& blocks, bool is_first,
                   const at::Tensor& out, const at::Tensor& lse) {
  const std::int64_t elements =
      tiles_of(of, scores).block_elements(/*backward=*/false, is_narrow(of.q));
  for_type(of, scores, blocks, is_first, elements,
           [&](auto pass) { pass.forward(by_head(out, of.q), lse); });
}

void add_attention_grad(const HeadTensors& of, const Scores& scores, const Blocks& blocks,
                        bool is_first, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& d_out, const HeadTensors& into) {
  const std::int64_t elements =
      tiles_of(of, scores).block_elements(/*backward=*/true, is_narrow(of.q));
  for_type(of, scores, blocks, is_first, elements,
           [&](auto pass) { pass.backward(by_head(out, of.q), lse, by_head(d_out, of.q), into); });
}

}  // namespace lockstep::nn
