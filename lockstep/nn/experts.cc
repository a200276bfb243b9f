#include "lockstep/nn/experts.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/nn/typed_rows.h"
#include "lockstep/nn/vector_math.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/tensor/view.h"

namespace lockstep::nn {
namespace {

using tensor::view_of;

// [begin, end) rows of a matrix.
at::Tensor rows_between(const at::Tensor& x, std::int64_t begin, std::int64_t end) {
  return view_of(x, {end - begin, x.size(1)}, {x.size(1), 1}, begin * x.size(1));
}
// Expert `e`'s of stacked weights or of their gradients, [out, in].
at::Tensor matrix_of(const at::Tensor& stacked, std::int64_t experts, std::int64_t e) {
  const std::int64_t rows = stacked.size(0) / experts;
  return rows_between(stacked, e * rows, (e + 1) * rows);
}
// Calls body(expert, first row, end) for experts with rows; and for others where `all`.
void for_experts(const std::vector<std::int64_t>& ends, bool all, const auto& body) {
  std::int64_t begin = 0, e = 0;
  for (const std::int64_t end : ends) {
    if (end > begin || all) body(e, begin, end);
    begin = end;
    ++e;
  }
}

}  // namespace

void sort_rows(PassRun& r) {
  const at::Tensor choices = r.in(0), places = r.make(0), ends = r.make(1);
  const auto* c = data_of<std::int64_t>(choices);
  auto *place = memory_of<std::int64_t>(places), *end = memory_of<std::int64_t>(ends);
  const std::int64_t rows = choices.numel(), experts = ends.numel();
  std::fill_n(end, experts, 0);
  for (std::int64_t i = 0; i < rows; ++i) ++end[c[i]];
  std::exclusive_scan(end, end + experts, end, std::int64_t{0});
  for (std::int64_t i = 0; i < rows; ++i) place[i] = end[c[i]]++;
}

void take_rows(PassRun& r) {
  const at::Tensor tokens = r.in(0), places = r.in(1), rows = r.make(0);
  const auto* place = data_of<std::int64_t>(places);
  const std::int64_t chosen = places.size(1);
  const auto bytes = static_cast<std::size_t>(tokens.size(1) * tokens.element_size());
  LS_CHECK(tokens.is_contiguous(), "rows of tokens that are not contiguous");
  const auto* from = static_cast<const char*>(tokens.const_data_ptr());
  auto* into = static_cast<char*>(rows.mutable_data_ptr());
  for_rows(tokens.size(0), tokens.size(1) * chosen, [&](std::int64_t t) {
    for (std::int64_t i = 0; i < chosen; ++i)
      std::memcpy(into + static_cast<std::size_t>(place[t * chosen + i]) * bytes,
                  from + static_cast<std::size_t>(t) * bytes, bytes);
  });
}

void return_rows(PassRun& r) {
  const at::Tensor rows = r.in(0), places = r.in(1), tokens = r.make(0);
  const auto* place = data_of<std::int64_t>(places);
  const std::int64_t chosen = places.size(1), columns = rows.size(1);
  for_type_of(rows, [&]<class T>(T) {
    const T* from = data_of<T>(rows);
    T* into = memory_of<T>(tokens);
    for_rows(tokens.size(0), columns * chosen, [&](std::int64_t t) {
      for (std::int64_t x = 0; x < columns; ++x) {
        WideOf<T> sum = 0;
        for (std::int64_t i = 0; i < chosen; ++i)
          sum += static_cast<WideOf<T>>(from[place[t * chosen + i] * columns + x]);
        into[t * columns + x] = rounded_to<T>(sum);
      }
    });
  });
}

void take_weights(PassRun& r) {
  const at::Tensor weights = r.in(0), places = r.in(1), rows = r.make(0);
  const auto* place = data_of<std::int64_t>(places);
  for_type_of(weights, [&]<class T>(T) {
    const T* from = data_of<T>(weights);
    T* into = memory_of<T>(rows);
    for (std::int64_t i = 0; i < weights.numel(); ++i) into[place[i]] = from[i];
  });
}

void return_weights(PassRun& r) {
  const at::Tensor rows = r.in(0), places = r.in(1), weights = r.make(0);
  const auto* place = data_of<std::int64_t>(places);
  for_type_of(rows, [&]<class T>(T) {
    const T* from = data_of<T>(rows);
    T* into = memory_of<T>(weights);
    for (std::int64_t i = 0; i < weights.numel(); ++i) into[i] = from[place[i]];
  });
}

void expert_linear(PassRun& r) {
  const at::Tensor x = r.in(0), y = r.make(0);
  const std::vector<std::int64_t>& ends = r.host_numbers(1);
  const at::Tensor weight = r.weight(x.size(1));
  for_experts(ends, /*all=*/false, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const at::Tensor given = rows_between(x, begin, end),
                     matrix = matrix_of(weight, std::ssize(ends), e);
    at::Tensor rows = rows_between(y, begin, end);
    if (!r.by_vector(given)) {
      at::mm_out(rows, given, tensor::transposed(matrix));
      return;
    }
    at::Tensor row = rows[0];
    at::mv_out(row, matrix, given[0]);
  });
}

void expert_linear_grad(PassRun& r) {
  const at::Tensor d = r.in(0), dx = r.make(0);
  const std::vector<std::int64_t>& ends = r.host_numbers(1);
  const at::Tensor weight = r.weight(dx.size(1));
  for_experts(ends, /*all=*/false, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    at::Tensor rows = rows_between(dx, begin, end);
    at::mm_out(rows, rows_between(d, begin, end), matrix_of(weight, std::ssize(ends), e));
  });
}

// An expert without rows has a gradient of zero.
void expert_linear_weight(PassRun& r) {
  const at::Tensor x = r.in(0), d = r.in(1), grad = r.weight_grad(x.size(1));
  const std::vector<std::int64_t>& ends = r.host_numbers(2);
  for_experts(ends, /*all=*/true, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const at::Tensor of = matrix_of(grad, std::ssize(ends), e);
    if (end > begin)
      add_product(of, rows_between(d, begin, end), rows_between(x, begin, end), r.writes_grads());
    else if (r.writes_grads())
      of.zero_();
  });
}

void count_rows(PassRun& r) {
  const at::Tensor ends = r.in(0), counts = r.make(0);
  const auto* end = data_of<std::int64_t>(ends);
  std::adjacent_difference(end, end + ends.numel(), memory_of<std::int64_t>(counts));
}

void sort_met(PassRun& r) {
  const std::vector<std::int64_t>& met = r.host_numbers(0);
  const at::Tensor places = r.make(0), ends = r.make(1);
  auto *place = memory_of<std::int64_t>(places), *end = memory_of<std::int64_t>(ends);
  const std::int64_t own = ends.numel(), ranks = std::ssize(met) / own;
  std::int64_t before = 0;
  std::vector<std::int64_t> first(met.size());  // row of each rank's to each own expert
  for (std::int64_t e = 0; e < own; ++e) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      first[rank * own + e] = before;
      before += met[rank * own + e];
    }
    end[e] = before;
  }
  for (std::size_t i = 0; i < met.size(); ++i) {
    std::iota(place, place + met[i], first[i]);
    place += met[i];
  }
}

void exchange_rows(PassRun& r) {
  const bool dispatches = r.part().kind == parts::Kind::kDispatch;
  const auto by_rank = [&](const std::vector<std::int64_t>& by_expert) {
    const std::int64_t ranks = r.group().size(), own = std::ssize(by_expert) / ranks;
    std::vector<std::int64_t> sums;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      sums.push_back(std::accumulate(by_expert.begin() + rank * own,
                                     by_expert.begin() + (rank + 1) * own, std::int64_t{0}));
    return sums;
  };
  std::vector<std::int64_t> sent = by_rank(r.host_numbers(1)), met = by_rank(r.host_numbers(2));
  r.sizes[parts::Dim::kMet] = std::accumulate(met.begin(), met.end(), std::int64_t{0});
  if (r.inputs.rows_met != nullptr)
    *r.inputs.rows_met = {r.sizes[parts::Dim::kMet],
                          met[static_cast<std::size_t>(r.group().index())]};
  if (!dispatches) std::swap(sent, met);
  r.issued(r.group().all_to_all(r.in(0), std::move(sent), r.make(0), std::move(met)));
}

void expert_swiglu(PassRun& r) {
  const at::Tensor gate = r.in(0), up = r.in(1), weights = r.in(2), product = r.make(0);
  const std::int64_t columns = gate.size(1);
  for_type_of(gate, [&]<class T>(T) {
    using W = WideOf<T>;
    const T *g = data_of<T>(gate), *u = data_of<T>(up);
    const W* w = data_of<W>(weights);
    T* into = memory_of<T>(product);
    for_rows(gate.size(0), columns, [&](std::int64_t row) {
      for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        const W x = static_cast<W>(g[i]);
        into[i] = rounded_to<T>(x / (1 + exponential(-x)) * static_cast<W>(u[i]) * w[row]);
      }
    });
  });
}

void expert_swiglu_grad(PassRun& r) {
  const at::Tensor d = r.in(0), gate = r.in(1), up = r.in(2), weights = r.in(3);
  const at::Tensor d_gate = r.make(0), d_up = r.make(1), d_weights = r.make(2);
  const std::int64_t columns = gate.size(1);
  for_type_of(gate, [&]<class T>(T) {
    using W = WideOf<T>;
    const T *dy = data_of<T>(d), *g = data_of<T>(gate), *u = data_of<T>(up);
    const W* w = data_of<W>(weights);
    T *dg = memory_of<T>(d_gate), *du = memory_of<T>(d_up);
    W* dw = memory_of<W>(d_weights);
    for_rows(gate.size(0), columns, [&](std::int64_t row) {
      W sum = 0;
      for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        const W x = static_cast<W>(g[i]), above = static_cast<W>(u[i]), in = static_cast<W>(dy[i]);
        const W sigmoid = 1 / (1 + exponential(-x)), silu = x * sigmoid;
        sum += in * silu * above;
        du[i] = rounded_to<T>(in * w[row] * silu);
        dg[i] = rounded_to<T>(in * w[row] * above * sigmoid * (1 + x * (1 - sigmoid)));
      }
      dw[row] = sum;
    });
  });
}

}  // namespace lockstep::nn
