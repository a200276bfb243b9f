#include "tests/nn/oracle.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/base/random.h"
#include "lockstep/nn/row_entropy.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "tests/nn/unit_layouts.h"

namespace lockstep::nn {
namespace {

struct Environment : testing::Environment {
  void SetUp() override {
    tensor::request_strict_kernels();
    tensor::install_counting_allocator();
  }
};
[[maybe_unused]] const testing::Environment* const kMargins =
    testing::AddGlobalTestEnvironment(new Environment);

void mix(model::ModelConfig& config, const Shape& shape) {
  config.family = model::Family::kMoe;
  config.ffn = 0;
  config.moe = {.experts = shape.experts, .top_k = 2, .expert_ffn = shape.ffn / 2};
  config.moe.norm_topk_prob = shape.kin == Kin::kMixtral;
  if (shape.kin == Kin::kDots1) {
    config.qk_norm = model::QkNorm::kPerHead;
    config.moe.norm_topk_prob = config.moe.router_bias = true;
    config.moe.score = model::RouterScore::kSigmoid;
    config.moe.experts = 6;
    config.moe.groups = 3;
    config.moe.top_groups = 2;
    config.moe.routed_scale = 2.5;
    config.moe.shared_ffn = shape.ffn;
  }
  if (shape.kin != Kin::kQwen2Moe) return;
  config.qkv_bias = config.moe.shared_gate = true;
  config.moe.shared_ffn = shape.ffn;
}

model::ModelConfig config_of(const Shape& shape, bool scaled_rope) {
  model::ModelConfig config;
  config.layers = 2;
  config.hidden = shape.hidden;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn = shape.ffn;
  config.vocab = shape.vocab;
  config.max_positions = shape.seq + 3;
  // Frequencies of all three ranges: kept, blended, stretched.
  if (scaled_rope && shape.kin != Kin::kGpt2) config.rope_scaling = {8.0, 1.0, 4.0, 64};
  switch (shape.kin) {
    case Kin::kLlama:
      break;
    case Kin::kGpt2:
      config.family = model::Family::kGpt2;
      config.norm = model::NormKind::kLayerNorm;
      config.qkv_bias = config.linear_bias = config.tied = true;
      break;
    case Kin::kQwen2:
      config.qkv_bias = config.tied = true;
      break;
    case Kin::kQwen3:
      config.qk_norm = model::QkNorm::kPerHead;
      config.norm_eps = 1e-6;
      break;
    case Kin::kMistral:
      config.window = shape.seq / 2;
      break;
    case Kin::kOlmo2:
      config.qk_norm = model::QkNorm::kWide;
      config.norm_place = model::NormPlace::kAfter;
      break;
    case Kin::kGemma2:
      config.family = model::Family::kGemma2;
      config.norm = model::NormKind::kRmsNormPlusOne;
      config.norm_place = model::NormPlace::kBoth;
      config.window = shape.seq / 2;
      config.window_every = 2;
      config.attention_softcap = 1.5;  // scores and logits here reach as far
      config.logit_softcap = 2.0;
      config.query_scale_dim = 12.0;
      config.tied = config.scaled_embedding = true;
      break;
    case Kin::kOlmoe:
      config.qk_norm = model::QkNorm::kWide;
      [[fallthrough]];
    case Kin::kMixtral:
    case Kin::kQwen2Moe:
    case Kin::kDots1:
      mix(config, shape);
      break;
  }
  return config;
}

// A leaf of its own for one parameter, in its shape.
class Leaves {
 public:
  Leaves(const Tiny& tiny, int unit, const at::Tensor& flat)
      : unit_(tiny.unit(unit)),
        plus_(tiny.config().norm == model::NormKind::kRmsNormPlusOne ? 1.0 : 0.0) {
    for (const model::FlatParam& place : tiny.flat(unit).params)
      places_.push_back(place),
          leaves_.push_back(flat.narrow(0, place.offset, place.numel)
                                .reshape(unit_.params[static_cast<std::size_t>(place.param)].shape)
                                .clone()
                                .requires_grad_());
  }
  const at::Tensor& operator[](const std::string& name) const {
    const at::Tensor* found = find(name);
    EXPECT_NE(found, nullptr) << "no parameter " << name;
    return found == nullptr ? leaves_.front() : *found;
  }
  // x W^T, and the bias where there is one.
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const at::Tensor product = at::matmul(x, (*this)[name + ".weight"].t());
    const at::Tensor* bias = find(name + ".bias");
    return bias == nullptr ? product : product + *bias;
  }
  // LayerNorm where there is a bias, else RMS.
  at::Tensor norm(const std::string& name, const at::Tensor& x, double eps) const {
    const at::Tensor* bias = find(name + ".bias");
    const at::Tensor centred = bias == nullptr ? x : x - x.mean(-1, true);
    const at::Tensor y = centred / (centred.square().mean(-1, true) + eps).sqrt() *
                         ((*this)[name + ".weight"] + plus_);
    return bias == nullptr ? y : y + *bias;
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  at::Tensor grads(const at::Tensor& like) const {
    at::Tensor flat = at::zeros_like(like);
    for (std::size_t i = 0; i < places_.size(); ++i)
      flat.narrow(0, places_[i].offset, places_[i].numel).copy_(leaves_[i].grad().reshape({-1}));
    return flat;
  }

 private:
  const at::Tensor* find(const std::string& name) const {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (unit_.params[static_cast<std::size_t>(places_[i].param)].name == name) return &leaves_[i];
    return nullptr;
  }

  const model::Unit& unit_;
  const double plus_;  // of gains
  std::vector<model::FlatParam> places_;
  std::vector<at::Tensor> leaves_;
};

// x times the Gaussian's distribution function, by a tanh (arXiv 1606.08415, section 2).
at::Tensor bent(const at::Tensor& x) {
  const double root = std::sqrt(2.0 / std::numbers::pi);
  return 0.5 * x * (1.0 + ((x + 0.044715 * x.pow(3)) * root).tanh());
}

// Hugging Face's "llama3" rule, by wavelength.
at::Tensor frequencies(const model::ModelConfig& config) {
  const model::RopeScaling& scaling = config.rope_scaling;
  std::vector<double> values;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    double value = 1.0 / std::pow(config.rope_theta,
                                  static_cast<double>(i) / static_cast<double>(config.head_dim));
    const double wavelength = 2.0 * std::numbers::pi / value;
    const auto old = static_cast<double>(scaling.original_positions);
    if (scaling.factor != 1.0 && wavelength > old / scaling.low_freq) {
      value /= scaling.factor;
    } else if (scaling.factor != 1.0 && wavelength >= old / scaling.high_freq) {
      const double smooth =
          (old / wavelength - scaling.low_freq) / (scaling.high_freq - scaling.low_freq);
      value = (1.0 - smooth) * value / scaling.factor + smooth * value;
    }
    values.push_back(value);
  }
  return at::tensor(values, at::kDouble);
}

// x cos + rotate_half(x) sin on [batch, heads, seq, head_dim].
at::Tensor turn(const at::Tensor& x, const model::ModelConfig& config) {
  const at::Tensor angles =
      at::outer(at::arange(x.size(2), at::kDouble), frequencies(config)).repeat({1, 2});
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return x * angles.cos().to(x.scalar_type()) +
         at::cat({-halves[1], halves[0]}, -1) * angles.sin().to(x.scalar_type());
}

at::Tensor capped(const at::Tensor& x, double cap) {
  return cap > 0.0 ? (x / cap).tanh() * cap : x;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const model::ModelConfig& config, std::int64_t window) {
  const std::int64_t repeats = q.size(1) / k.size(1), seq = q.size(2);
  at::Tensor hidden = at::ones({seq, seq}, at::kBool).triu(1);
  if (window > 0) hidden = hidden.logical_or(at::ones({seq, seq}, at::kBool).tril(-window));
  const double dim =
      config.query_scale_dim > 0.0 ? config.query_scale_dim : static_cast<double>(config.head_dim);
  const at::Tensor scores =
      capped(at::matmul(q, k.repeat_interleave(repeats, 1).transpose(-1, -2)) / std::sqrt(dim),
             config.attention_softcap);
  const at::Tensor shares =
      scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(shares, v.repeat_interleave(repeats, 1));
}

// Of the shares that a router's scores have and of the logits behind them.
at::Tensor router_losses(const at::Tensor& logits, const at::Tensor& scores,
                         const at::Tensor& which, const Shape& shape, const RouterCoeffs& coeffs) {
  const std::int64_t experts = logits.size(-1), top = which.size(-1);
  const at::Tensor probs =
      (scores / scores.sum(-1, true)).reshape({shape.batch, shape.seq, experts});
  const at::Tensor chosen =
      at::zeros_like(probs).scatter(-1, which.reshape({shape.batch, shape.seq, top}), 1.0);
  const at::Tensor balance = (chosen.mean(1) * probs.mean(1)).sum(-1).mean();
  return balance * (coeffs.aux * static_cast<double>(experts) / static_cast<double>(top)) +
         logits.logsumexp(-1).square().mean() * coeffs.z;
}

// As transformers does it: groups by the sum of their best two.
at::Tensor chosen_experts(const at::Tensor& scores, const model::Moe& moe, const at::Tensor& bias) {
  at::Tensor by = bias.defined() ? scores.detach() + bias : scores.detach();
  if (moe.groups > 1) {
    const at::Tensor grouped = by.reshape({by.size(0), moe.groups, -1});
    const at::Tensor best = std::get<0>(grouped.topk(2, -1)).sum(-1);
    const at::Tensor open = std::get<1>(best.topk(moe.top_groups, -1));
    const at::Tensor closed = at::ones_like(best).scatter(-1, open, 0.0).unsqueeze(-1);
    by = grouped.masked_fill(closed.to(at::kBool), -std::numeric_limits<double>::infinity())
             .reshape(by.sizes());
  }
  return std::get<1>(by.topk(moe.top_k, -1));
}

// Every expert on every token, and most of that times zero; and the losses of its router.
std::pair<at::Tensor, at::Tensor> mixture(const Leaves& w, const at::Tensor& x,
                                          const model::Moe& moe, const Shape& shape,
                                          const RouterCoeffs& coeffs, const at::Tensor& bias) {
  const std::string name = "blocks.{i}.moe.";
  const at::Tensor logits = w.linear(name + "router", x);
  const at::Tensor scores =
      moe.score == model::RouterScore::kSigmoid ? logits.sigmoid() : logits.softmax(-1);
  const at::Tensor which = chosen_experts(scores, moe, bias), chosen = scores.gather(-1, which);
  const at::Tensor weights =
      (moe.norm_topk_prob ? chosen / chosen.sum(-1, true) : chosen) * moe.routed_scale;
  const at::Tensor shares = at::zeros_like(scores).scatter(-1, which, weights);
  const auto matrix = [&](const char* which_one, std::int64_t e) {
    return w[name + "experts." + which_one + ".weight"][e].t();
  };
  at::Tensor sum = at::zeros_like(x);
  for (std::int64_t e = 0; e < moe.experts; ++e) {
    const at::Tensor gate = at::matmul(x, matrix("gate", e));
    const at::Tensor product = gate * gate.sigmoid() * at::matmul(x, matrix("up", e));
    sum = sum + shares.narrow(-1, e, 1) * at::matmul(product, matrix("down", e));
  }
  if (moe.shared_ffn > 0) {
    const at::Tensor gate = w.linear(name + "shared.gate", x);
    const at::Tensor product = gate * gate.sigmoid() * w.linear(name + "shared.up", x);
    const at::Tensor shared = w.linear(name + "shared.down", product);
    sum = sum + (moe.shared_gate ? w.linear(name + "shared_gate", x).sigmoid() * shared : shared);
  }
  return {sum, router_losses(logits, scores, which, shape, coeffs)};
}

}  // namespace

Shape Shape::as(Kin other) const {
  Shape shape = *this;
  shape.kin = other;
  if (other != Kin::kGpt2) return shape;
  shape.kv_heads = heads;
  shape.hidden = heads * head_dim;
  return shape;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all = llama_shapes();
  for (const Kin kin : kAllKin)
    if (kin != Kin::kLlama)
      for (const std::size_t i : {0U, 1U}) all.push_back(all[i].as(kin));
  return all;
}

std::vector<Shape> llama_shapes() {
  return {
      {},
      {.batch = 1, .seq = 33, .hidden = 96, .heads = 6, .kv_heads = 6, .ffn = 160},
      {.batch = 3, .seq = 20, .hidden = 32, .heads = 8, .kv_heads = 1, .head_dim = 8, .ffn = 72},
      {.batch = 1, .seq = 200, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 128}};
}

Tiny::Tiny(const Shape& of, bool scaled_rope)
    : shape(of), model(*model::describe(config_of(of, scaled_rope))), flats(unit_layouts(model)) {}

at::Tensor random(std::string_view name, std::vector<std::int64_t> sizes, at::ScalarType type,
                  double scale) {
  const RandomStream stream(7, name);
  at::Tensor values = at::empty(sizes, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.mutable_data_ptr<double>()[i] =
        scale * (2.0 * stream.uniform(static_cast<std::uint64_t>(i)) - 1.0);
  return values.to(type);
}

at::Tensor random_params(const Tiny& tiny, int unit, at::ScalarType type) {
  const model::FlatLayout& flat = tiny.flat(unit);
  at::Tensor all = at::full({flat.padded(2)}, kNan, type);
  for (const model::FlatParam& place : flat.params) {
    const model::Param& param = tiny.unit(unit).params[static_cast<std::size_t>(place.param)];
    const bool gain = param.role == model::Role::kNorm;
    const double scale = gain ? 0.3 : 1.7 / std::sqrt(static_cast<double>(param.shape.back()));
    const at::Tensor values = random(param.name, {place.numel}, at::kDouble, scale);
    all.narrow(0, place.offset, place.numel).copy_(gain ? values + 1.0 : values);
  }
  return all;
}

at::Tensor random_labels(const Shape& shape, std::int64_t ignore) {
  at::Tensor labels = at::empty({shape.batch, shape.seq}, at::kLong);
  const RandomStream stream(7, "labels");
  for (std::int64_t i = 0; i < shape.tokens(); ++i)
    labels.mutable_data_ptr<std::int64_t>()[i] =
        ignore > 0 && i % ignore == 0
            ? kIgnored
            : static_cast<std::int64_t>(stream.below(static_cast<std::uint64_t>(shape.vocab),
                                                     static_cast<std::uint64_t>(i)));
  return labels;
}

std::vector<Named> parts(const Tiny& tiny, int unit, const at::Tensor& flat) {
  std::vector<Named> all;
  for (const model::FlatParam& place : tiny.flat(unit).params)
    all.push_back({tiny.unit(unit).params[static_cast<std::size_t>(place.param)].name,
                   flat.narrow(0, place.offset, place.numel)});
  return all;
}

Truth embed_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& tokens,
                  const at::Tensor& d_out) {
  const Leaves w(tiny, kEmbed, params);
  at::Tensor out = at::embedding(w["embed.weight"], tokens);
  if (w.has("embed.positions")) out = out + w["embed.positions"].narrow(0, 0, tokens.size(1));
  if (tiny.config().scaled_embedding) out = out * std::sqrt(static_cast<double>(tiny.shape.hidden));
  out = out.reshape(d_out.sizes());
  torch::autograd::backward({out}, {d_out});
  return {out.detach(), {}, w.grads(params)};
}

Truth block_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& input,
                  const at::Tensor& d_out, const RouterCoeffs& coeffs) {
  const Shape& shape = tiny.shape;
  const double eps = tiny.config().norm_eps;
  const std::string block = "blocks.{i}.";
  const Leaves w(tiny, kBlock, params);
  const at::Tensor x = input.detach().clone().requires_grad_();
  const bool wide_norm = tiny.config().qk_norm == model::QkNorm::kWide;
  const auto heads = [&](const std::string& name, const at::Tensor& of) {
    at::Tensor all = w.linear(block + "attn." + name, of);
    const std::string norm = block + "attn." + name + "_norm";
    const bool has_norm = w.has(norm + ".weight");
    if (has_norm && wide_norm) all = w.norm(norm, all, eps);
    all = all.reshape({shape.batch, shape.seq, -1, shape.head_dim});
    if (has_norm && !wide_norm) all = w.norm(norm, all, eps);
    return all.transpose(1, 2);
  };
  const model::NormPlace place = tiny.config().norm_place;
  const auto before = [&](const char* name, const at::Tensor& of) {
    return place == model::NormPlace::kAfter ? of : w.norm(block + name, of, eps);
  };
  const auto behind = [&](const std::string& name, const at::Tensor& of) {
    if (place == model::NormPlace::kBefore) return of;
    return w.norm(block + name + (place == model::NormPlace::kBoth ? "_post_norm" : "_norm"), of,
                  eps);
  };
  const bool turns = shape.kin != Kin::kGpt2;
  const at::Tensor normed = before("attn_norm", x);
  const at::Tensor q = heads("q", normed), k = heads("k", normed);
  const at::Tensor mixed =
      attention(turns ? turn(q, tiny.config()) : q, turns ? turn(k, tiny.config()) : k,
                heads("v", normed), tiny.config(), tiny.unit(kBlock).attention->window)
          .transpose(1, 2)
          .reshape({shape.tokens(), shape.q()});
  const at::Tensor middle = x + behind("attn", w.linear(block + "attn.o", mixed));
  const at::Tensor wide = before("mlp_norm", middle);
  const auto dense = [&] {
    const at::Tensor up = w.linear(block + "mlp.up", wide);
    if (!w.has(block + "mlp.gate.weight")) return w.linear(block + "mlp.down", bent(up));
    const at::Tensor gate = w.linear(block + "mlp.gate", wide);
    const at::Tensor open = shape.kin == Kin::kGemma2 ? bent(gate) : gate * gate.sigmoid();
    return w.linear(block + "mlp.down", open * up);
  };
  const model::Moe& moe = tiny.config().moe;
  if (moe.experts > 0) {
    const auto [sum, losses] = mixture(w, wide, moe, shape, coeffs, router_bias(tiny.config()));
    const at::Tensor out = middle + behind("mlp", sum);
    torch::autograd::backward({out, losses}, {d_out, at::ones_like(losses)});
    return {out.detach(), x.grad(), w.grads(params), losses.item<double>()};
  }
  const at::Tensor out = middle + behind("mlp", dense());
  torch::autograd::backward({out}, {d_out});
  return {out.detach(), x.grad(), w.grads(params)};
}

Truth head_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& input,
                 const at::Tensor& labels, double seed) {
  const Leaves w(tiny, kHead, params);
  const at::Tensor x = input.detach().clone().requires_grad_();
  const at::Tensor logits = capped(w.linear("head", w.norm("head.norm", x, tiny.config().norm_eps)),
                                   tiny.config().logit_softcap);
  const at::Tensor loss = at::nll_loss(at::log_softmax(logits, -1), labels.reshape({-1}), {},
                                       at::Reduction::Sum, kIgnored);
  torch::autograd::backward({loss * seed}, {});
  return {loss.detach(), x.grad(), w.grads(params)};
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor truth = b.to(at::kDouble);
  return (a.to(at::kDouble) - truth).abs().max().item<double>() / truth.abs().max().item<double>();
}

double distance(const Tiny& tiny, int unit, const at::Tensor& a, const at::Tensor& b) {
  double greatest = 0.0;
  const std::vector<Named> left = parts(tiny, unit, a), right = parts(tiny, unit, b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    // Without rotary positions a bias of keys shifts all scores of a query alike, so that its
    // gradient is nothing but rounding; its measure is that of the value's bias, the next part.
    const bool vanishes = tiny.shape.kin == Kin::kGpt2 && left[i].name == "blocks.{i}.attn.k.bias";
    const double here = vanishes ? distance(at::cat({left[i].values, left[i + 1].values}),
                                            at::cat({right[i].values, right[i + 1].values}))
                                 : distance(left[i].values, right[i].values);
    if (std::isnan(here)) return here;
    greatest = std::max(greatest, here);
  }
  return greatest;
}

}  // namespace lockstep::nn
