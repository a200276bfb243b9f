// What Lockstep's step costs beside the same llama as a LibTorch user would write it: weights as
// leaves, one autograd graph per microbatch, fused attention, cross-entropy and AdamW, in place of
// an MLP maybe experts, whose rows are sorted once and multiplied expert by expert. LibTorch's own
// allocator, and Lockstep's. One rank, f32, steps in turn, medians and their ratio.
//   bench_step_vs_bare [rounds = 15]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/median.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/session.h"

namespace lockstep {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1;

class BareLlama {
 public:
  BareLlama(const model::ModelConfig& config, std::int64_t seq, at::ScalarType type);

  // One step over microbatches of tokens and labels, [batch, seq] each: mean loss, clipping by the
  // global norm, AdamW. Returns the loss.
  double step(const std::vector<at::Tensor>& tokens, const std::vector<at::Tensor>& labels,
              double lr, double clip);

 private:
  struct Block {
    at::Tensor attn_norm, qkv, out, mlp_norm, gate_up, down;
    at::Tensor router;  // of experts, whose matrices gate_up and down then are
  };

  at::Tensor rotate(const at::Tensor& x) const;
  at::Tensor forward(const Block& block, const at::Tensor& x, std::int64_t batch) const;
  at::Tensor mlp(const Block& block, const at::Tensor& x) const;
  at::Tensor experts(const Block& block, const at::Tensor& x) const;
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& labels) const;

  model::ModelConfig config_;
  std::int64_t seq_;
  at::Tensor cos_, sin_;
  at::Tensor embed_, norm_, head_;
  std::vector<Block> blocks_;
  std::vector<at::Tensor> params_, first_, second_, counts_;
};

BareLlama::BareLlama(const model::ModelConfig& config, std::int64_t seq, at::ScalarType type)
    : config_(config), seq_(seq) {
  const at::TensorOptions options(type);
  const auto weight = [&](std::vector<std::int64_t> shape) {
    params_.push_back((at::randn(shape, options) * config.init_std).requires_grad_());
    return params_.back();
  };
  const auto gain = [&] {
    params_.push_back(at::ones({config.hidden}, options).requires_grad_());
    return params_.back();
  };
  const std::int64_t h = config.hidden, q = config.heads * config.head_dim,
                     kv = config.kv_heads * config.head_dim;
  embed_ = weight({config.vocab, h});
  const std::int64_t experts = config.moe.experts, f = config.moe.expert_ffn;
  for (std::int64_t i = 0; i < config.layers; ++i) {
    Block block = {gain(), weight({q + 2 * kv, h}), weight({h, q}), gain(), {}, {}, {}};
    block.gate_up =
        weight(experts > 0 ? std::vector{experts, 2 * f, h} : std::vector{2 * config.ffn, h});
    block.down = weight(experts > 0 ? std::vector{experts, h, f} : std::vector{h, config.ffn});
    if (experts > 0) block.router = weight({experts, h});
    blocks_.push_back(block);
  }
  norm_ = gain();
  head_ = config.tied ? embed_ : weight({config.vocab, h});
  for (const at::Tensor& param : params_) {
    first_.push_back(at::zeros_like(param));
    second_.push_back(at::zeros_like(param));
    counts_.push_back(at::zeros({}, at::kFloat));
  }
  const at::Tensor positions = at::arange(seq, at::kDouble);
  const at::Tensor powers =
      at::arange(0, config.head_dim, 2, at::kDouble) / static_cast<double>(config.head_dim);
  const at::Tensor angles = at::outer(positions, at::pow(config.rope_theta, -powers));
  cos_ = at::cat({angles.cos(), angles.cos()}, -1).to(type);
  sin_ = at::cat({angles.sin(), angles.sin()}, -1).to(type);
}

// [batch, heads, seq, head_dim]
at::Tensor BareLlama::rotate(const at::Tensor& x) const {
  const auto halves = x.chunk(2, -1);
  return x * cos_ + at::cat({-halves[1], halves[0]}, -1) * sin_;
}

at::Tensor BareLlama::forward(const Block& block, const at::Tensor& x, std::int64_t batch) const {
  const std::int64_t d = config_.head_dim, q = config_.heads * d, kv = config_.kv_heads * d;
  const at::Tensor normed = at::rms_norm(x, {config_.hidden}, block.attn_norm, config_.norm_eps);
  const auto parts = at::linear(normed, block.qkv).split_with_sizes({q, kv, kv}, -1);
  const auto heads = [&](const at::Tensor& t) {
    return t.view({batch, seq_, -1, d}).transpose(1, 2);
  };
  const at::Tensor attended = at::scaled_dot_product_attention(
      rotate(heads(parts[0])), rotate(heads(parts[1])), heads(parts[2]), {}, 0.0,
      /*is_causal=*/true, std::nullopt, /*enable_gqa=*/true);
  const at::Tensor middle =
      x + at::linear(attended.transpose(1, 2).reshape({batch * seq_, q}), block.out);
  const at::Tensor inner = at::rms_norm(middle, {config_.hidden}, block.mlp_norm, config_.norm_eps);
  return middle + (config_.moe.experts > 0 ? experts(block, inner) : mlp(block, inner));
}

at::Tensor BareLlama::mlp(const Block& block, const at::Tensor& x) const {
  const auto pair = at::linear(x, block.gate_up).chunk(2, -1);
  return at::linear(at::silu(pair[0]) * pair[1], block.down);
}

at::Tensor BareLlama::experts(const Block& block, const at::Tensor& x) const {
  const std::int64_t experts = config_.moe.experts, top = config_.moe.top_k;
  const auto [chosen, which] = at::linear(x, block.router).softmax(-1).topk(top, -1);
  const at::Tensor weights = (chosen / chosen.sum(-1, true)).flatten();
  const at::Tensor order = which.flatten().argsort(/*stable=*/true, -1, false);
  const at::Tensor tokens = order.floor_divide(top), counts = which.flatten().bincount({}, experts);
  const auto* const count = counts.const_data_ptr<std::int64_t>();
  const auto rows = x.index_select(0, tokens).split_with_sizes({count, count + experts});
  std::vector<at::Tensor> outs;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto pair = at::linear(rows[static_cast<std::size_t>(e)], block.gate_up[e]).chunk(2, -1);
    outs.push_back(at::linear(at::silu(pair[0]) * pair[1], block.down[e]));
  }
  const at::Tensor weighted = at::cat(outs) * weights.index_select(0, order).unsqueeze(-1);
  return at::zeros_like(x).index_add(0, tokens, weighted);
}

at::Tensor BareLlama::loss(const at::Tensor& tokens, const at::Tensor& labels) const {
  at::Tensor x = at::embedding(embed_, tokens.flatten());
  for (const Block& block : blocks_) x = forward(block, x, tokens.size(0));
  const at::Tensor logits =
      at::linear(at::rms_norm(x, {config_.hidden}, norm_, config_.norm_eps), head_);
  return at::cross_entropy_loss(logits, labels.flatten(), {}, at::Reduction::Sum);
}

double BareLlama::step(const std::vector<at::Tensor>& tokens, const std::vector<at::Tensor>& labels,
                       double lr, double clip) {
  double total = 0;
  std::int64_t count = 0;
  for (const at::Tensor& part : labels) count += part.numel();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const at::Tensor summed = loss(tokens[i], labels[i]) / static_cast<double>(count);
    torch::autograd::backward({summed}, {});
    total += summed.item<double>();
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads, norms;
  for (const at::Tensor& param : params_) {
    grads.push_back(param.grad());
    norms.push_back(at::linalg_vector_norm(param.grad()));
  }
  const double norm = at::linalg_vector_norm(at::stack(norms)).item<double>();
  if (norm > clip) at::_foreach_mul_(grads, clip / norm);
  at::_foreach_add_(counts_, 1);
  at::_fused_adamw_(params_, grads, first_, second_, {}, counts_, lr, kBeta1, kBeta2, kDecay, kEps,
                    false, false);
  for (at::Tensor& param : params_) param.mutable_grad().reset();
  return total;
}

struct Case {
  const char* name;
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq, microbatch, microbatches;
  std::int64_t experts = 0;  // of width ffn, of which a token meets two
};
constexpr Case kCases[] = {
    {"small: 6 layers of 256, 512 tokens", 6, 256, 8, 4, 704, 2048, 256, 2, 2},
    {"wide: 4 layers of 768, 512 tokens", 4, 768, 12, 4, 2048, 8192, 256, 2, 2},
    {"8 experts: 6 layers of 256, 512 tokens", 6, 256, 8, 4, 352, 2048, 256, 2, 2, 8},
    {"8 experts: 2 layers of 768, 512 tokens", 2, 768, 12, 4, 1024, 8192, 256, 2, 2, 8},
};

spec::Spec spec_of(const Case& about) {
  spec::Spec spec;
  spec.model.name = about.name;
  spec.model.layers = about.layers;
  spec.model.hidden = about.hidden;
  spec.model.heads = about.heads;
  spec.model.kv_heads = about.kv_heads;
  spec.model.head_dim = about.hidden / about.heads;
  spec.model.ffn = about.ffn;
  spec.model.vocab = about.vocab;
  spec.model.max_positions = about.seq;
  if (about.experts > 0) {
    spec.model.family = model::Family::kMoe;
    spec.model.ffn = 0;
    spec.model.moe = {.experts = about.experts, .top_k = 2, .expert_ffn = about.ffn};
  }
  spec.layout.zero = 0;
  spec.batch = {about.seq, about.microbatch * about.microbatches, about.microbatch};
  spec.train = {1, {.peak = 1e-3}, kDecay, 1.0, 1, DType::kF32};
  return spec;
}

template <class Body>
double seconds(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

enum class Allocator : std::uint8_t { kLibTorch, kCounting };

void measure(const Case& about, int threads, int rounds, Allocator of_bare) {
  at::set_num_threads(threads);
  spec::Spec spec = spec_of(about);
  spec.train.threads = threads;
  const auto job = train::make_job(spec);
  const data::MockTokens source(1, about.vocab, false);
  std::vector<at::Tensor> tokens, labels;
  for (std::int64_t mb = 0; mb < about.microbatches; ++mb)
    for (auto* parts : {&tokens, &labels})
      parts->push_back(at::randint(about.vocab, {about.microbatch, about.seq}, at::kLong));
  comm::run_local(1, [&](comm::World& world) {
    at::set_num_threads(threads);
    const auto with_its_own = [&](auto body) {
      if (of_bare == Allocator::kLibTorch) tensor::uninstall_counting_allocator();
      auto made = body();
      if (of_bare == Allocator::kLibTorch) tensor::install_counting_allocator();
      return made;
    };
    BareLlama bare =
        with_its_own([&] { return BareLlama(job->model.config, about.seq, at::kFloat); });
    train::Session session(*job, world, "", source, Seconds{60});
    std::vector<double> plain, ours;
    for (int round = 0; round < rounds + 2; ++round) {
      const double theirs =
          with_its_own([&] { return seconds([&] { bare.step(tokens, labels, 1e-3, 1.0); }); });
      const double own = seconds([&] { session.step(round); });
      if (round < 2) continue;  // first touches
      plain.push_back(theirs);
      ours.push_back(own);
    }
    const double p = median(plain), o = median(ours);
    std::printf("%-38s %d thread%s  bare%s %8.2f ms  lockstep %8.2f ms  ratio %.3f\n", about.name,
                threads, threads == 1 ? " " : "s",
                of_bare == Allocator::kCounting ? ", same allocator" : "", 1e3 * p, 1e3 * o, o / p);
    std::fflush(stdout);
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::tensor::request_strict_kernels();
  lockstep::tensor::install_counting_allocator();
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  for (const auto& about : lockstep::kCases)
    for (int threads : {1, 2})
      for (const auto of : {lockstep::Allocator::kLibTorch, lockstep::Allocator::kCounting})
        lockstep::measure(about, threads, rounds, of);
  return 0;
}
