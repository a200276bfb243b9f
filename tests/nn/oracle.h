// What the passes of nn/ are judged by: the same layers from LibTorch's elementary ops,
// differentiated by its autograd. Also the models and random tensors that the tests share.
// Including it makes the test program count its memory and ask for strict kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"

namespace lockstep::nn {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kEps32 = std::numeric_limits<float>::epsilon();
inline constexpr double kLossSeed = 0.37;  // what the loss's own gradient is multiplied by

// Which traits a model has, by the name of a family that has them.
enum class Kin : std::uint8_t {
  kLlama,
  kGpt2,
  kQwen2,
  kQwen3,
  kMistral,
  kOlmo2,
  kGemma2,
  kMixtral,
  kOlmoe,
  kQwen2Moe,
  kDots1
};
inline constexpr std::array kAllKin = {Kin::kLlama,   Kin::kGpt2,     Kin::kQwen2,  Kin::kQwen3,
                                       Kin::kMistral, Kin::kOlmo2,    Kin::kGemma2, Kin::kMixtral,
                                       Kin::kOlmoe,   Kin::kQwen2Moe, Kin::kDots1};

struct Shape {
  std::int64_t batch = 2, seq = 12, hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  std::int64_t vocab = 50;
  std::int64_t experts = 5;  // of mixtures
  Kin kin = Kin::kLlama;

  // The same sizes with other traits, where these allow: gpt2 has as many key-value heads as heads,
  // which together are as wide as the model.
  Shape as(Kin other) const;
  std::int64_t tokens() const { return batch * seq; }
  std::int64_t q() const { return heads * head_dim; }
  std::int64_t k() const { return kv_heads * head_dim; }
};

// Of llama: grouped, full and single key-value heads; heads wider than the model; more than one
// attention tile.
std::vector<Shape> llama_shapes();
// And the first two of them with the traits of the others.
std::vector<Shape> shapes();

// A model of two layers with that shape, and its units embed, block, head.
struct Tiny {
  explicit Tiny(const Shape& shape, bool scaled_rope = true);

  Shape shape;
  model::Model model;
  std::vector<model::FlatLayout> flats;
  const model::ModelConfig& config() const { return model.config; }
  const model::Unit& unit(int i) const { return model.distinct[static_cast<std::size_t>(i)]; }
  const model::FlatLayout& flat(int i) const { return flats[static_cast<std::size_t>(i)]; }
};
inline constexpr int kEmbed = 0, kBlock = 1, kHead = 2;

// Uniform in [-scale, scale), a function of the name; rounded to `type`.
at::Tensor random(std::string_view name, std::vector<std::int64_t> sizes, at::ScalarType type,
                  double scale = 1.0);
// Flat parameters of a unit: weights of a useful size, gains around 1, gaps NaN, so that a pass
// that reads or writes them is noticed.
at::Tensor random_params(const Tiny& tiny, int unit, at::ScalarType type);
// i64 in [0, vocab), [batch, seq]; every `ignore`-th is kIgnored.
at::Tensor random_labels(const Shape& shape, std::int64_t ignore = 0);

// The parts of a unit's flat buffer that hold parameters, by name.
struct Named {
  std::string_view name;
  at::Tensor values;
};
std::vector<Named> parts(const Tiny& tiny, int unit, const at::Tensor& flat);

struct Truth {
  at::Tensor out;       // of embedding and block; of the head: the sum of token losses, a scalar
  at::Tensor d_input;   // [T, h]; undefined for the embedding
  at::Tensor d_params;  // flat, zero in the gaps
  double router_losses = 0;
};
struct RouterCoeffs {
  double aux = 0, z = 0;
};
Truth embed_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& tokens,
                  const at::Tensor& d_out);
// `coeffs`: of losses of the router, whose gradients are added.
Truth block_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& input,
                  const at::Tensor& d_out, const RouterCoeffs& coeffs = {});
Truth head_truth(const Tiny& tiny, const at::Tensor& params, const at::Tensor& input,
                 const at::Tensor& labels, double seed);

// max |a - b| / max |b|, in f64.
double distance(const at::Tensor& a, const at::Tensor& b);
// The greatest distance over the parts; a part that vanishes is measured together with its
// neighbour.
double distance(const Tiny& tiny, int unit, const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::nn
