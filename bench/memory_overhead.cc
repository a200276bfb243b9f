// What counting memory costs: a training step of a small model with LibTorch's own allocator and
// with the counting one, in turn. Prints medians and their ratio.
//   bench_memory_overhead [steps = 400]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/median.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep {
namespace {

// Two blocks of norm, MLP and residual on 256 tokens of width 256: small tensors, many allocations.
double step(std::vector<at::Tensor>& weights, const at::Tensor& input) {
  const auto start = std::chrono::steady_clock::now();
  at::Tensor x = input;
  for (std::size_t i = 0; i < weights.size(); i += 2) {
    const at::Tensor normed = at::layer_norm(x, {x.size(1)});
    x = x + at::linear(at::gelu(at::linear(normed, weights[i])), weights[i + 1]);
  }
  torch::autograd::backward({x.square().mean()}, {});
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : weights) {
    weight.sub_(weight.grad(), 1e-3);
    weight.mutable_grad() = at::Tensor();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(int steps) {
  tensor::request_strict_kernels();
  at::manual_seed(1);
  std::vector<at::Tensor> weights;
  for (int block = 0; block < 2; ++block) {
    weights.push_back(at::randn({1024, 256}).mul_(0.03).requires_grad_());
    weights.push_back(at::randn({256, 1024}).mul_(0.03).requires_grad_());
  }
  const at::Tensor input = at::randn({256, 256});
  std::vector<double> plain, counted;
  for (int i = 0; i < steps + 20; ++i) {
    tensor::uninstall_counting_allocator();
    const double without = step(weights, input);
    tensor::install_counting_allocator();
    const double with = step(weights, input);
    if (i < 20) continue;
    plain.push_back(without);
    counted.push_back(with);
  }
  const double p = median(plain), c = median(counted);
  std::printf("step: %.3f ms plain, %.3f ms counted, ratio %.4f; %lld allocations counted\n",
              1e3 * p, 1e3 * c, c / p,
              static_cast<long long>(tensor::process_account().allocations()));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc > 1 ? std::atoi(argv[1]) : 400); }
