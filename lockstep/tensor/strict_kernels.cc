#include "lockstep/tensor/strict_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>

#include <cstdlib>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::tensor {
namespace {

at::Tensor random_matrix(const char* name, std::int64_t rows, std::int64_t columns,
                         at::ScalarType dtype) {
  const RandomStream random(1, name);
  at::Tensor matrix = at::empty({rows, columns}, at::kDouble);
  auto* data = matrix.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < rows * columns; ++i)
    data[i] = random.uniform(static_cast<std::uint64_t>(i)) - 0.5;
  return matrix.to(dtype);
}

// a times the transpose of w, as a linear layer computes it, with rows of one of them cut.
at::Tensor by_pieces(const at::Tensor& a, const at::Tensor& w, bool cut_a, std::int64_t pieces) {
  std::vector<at::Tensor> parts;
  const at::Tensor& cut = cut_a ? a : w;
  const std::int64_t length = cut.size(0) / pieces;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const at::Tensor piece = cut.narrow(0, i * length, length);
    parts.push_back(cut_a ? at::mm(piece, w.t()) : at::mm(a, piece.t()));
  }
  return at::cat(parts, cut_a ? 0 : 1);
}

bool holds_for(at::ScalarType dtype) {
  // 16 x 1024 by 1024 x 256 differs when split by columns on MKL's default dispatch; the others
  // vary the shape.
  const std::int64_t shapes[][3] = {{16, 1024, 256}, {96, 384, 64}, {256, 48, 1024}};
  for (const auto& [m, k, n] : shapes) {
    const at::Tensor a = random_matrix("strict/a", m, k, dtype),
                     w = random_matrix("strict/w", n, k, dtype);
    const at::Tensor whole = at::mm(a, w.t());
    for (const std::int64_t pieces : {2, 4})
      for (const bool cut_a : {false, true})
        if (!at::equal(by_pieces(a, w, cut_a, pieces), whole)) return false;
  }
  return true;
}

// MKL reads the setting, and chooses kernels of products and of functions of elements, when they
// are first called, and not safely: of ranks that made their first calls together, one computed by
// other kernels than ever after, in one process of 150. So they are made here.
void make_first_calls() {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor rows = random_matrix("strict/rows", 256, 64, dtype),
                     square = random_matrix("strict/square", 64, 64, dtype);
    for (const at::Tensor& a : {rows, square})
      for (const at::Tensor& by : {square, square.t()}) at::mm(a, by);
    at::mm(rows.t(), rows);
    at::mv(square, square[0]);
    const at::Tensor positive = at::exp(rows);
    for (at::Tensor (*function)(const at::Tensor&) :
         {at::log, at::sqrt, at::rsqrt, at::sin, at::cos, at::tanh, at::erf})
      function(positive);
  }
}

}  // namespace

void request_strict_kernels() {
  ::setenv("MKL_CBWR", "AUTO,STRICT", /*overwrite=*/0);
  at::set_num_threads(1);
  make_first_calls();
}

StrictReport test_strict_kernels() {
  const char* setting = std::getenv("MKL_CBWR");
  return {holds_for(at::kFloat), holds_for(at::kDouble), setting != nullptr ? setting : ""};
}

}  // namespace lockstep::tensor
