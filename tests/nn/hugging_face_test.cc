// A whole tiny llama, embedding to loss and back, against Hugging Face's (make_llama_golden.py, which
// states the formula of the weights). Its norms and angles are computed in f32, hence the bounds.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/nn/block.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/head.h"
#include "tests/nn/oracle.h"
#include "tests/support/golden.h"

namespace lockstep::nn {
namespace {

std::uint32_t hashed(std::uint32_t p, std::uint32_t i) {
  std::uint32_t x = i * 2654435761U + p * 97531U + 12345U;
  for (const std::uint32_t factor : {0x45d9f3bU, 0x119de1f3U}) x = (x ^ (x >> 16)) * factor;
  return x ^ (x >> 16);
}

// Flat parameters of a unit whose first parameter has the number `p`.
at::Tensor formula(const Tiny& tiny, int unit, int p) {
  at::Tensor flat = at::empty({tiny.flat(unit).padded(1)}, at::kDouble).zero_();
  for (const arch::FlatParam& place : tiny.flat(unit).params) {
    const arch::Param& param = tiny.unit(unit).params[static_cast<std::size_t>(place.param)];
    const bool gain = param.shape.size() == 1;
    const double scale = gain ? 0.6 : 3.4 / std::sqrt(static_cast<double>(param.shape.back()));
    for (std::int64_t i = 0; i < place.numel; ++i)
      flat.mutable_data_ptr<double>()[place.offset + i] =
          (gain ? 1.0 : 0.0) + scale * (hashed(static_cast<std::uint32_t>(p + place.param),
                                               static_cast<std::uint32_t>(i)) /
                                            4294967296.0 -
                                        0.5);
  }
  return flat;
}

Json golden() {
  std::ifstream file(support::source_dir() + "/tests/golden/nn/llama_logits.json");
  std::stringstream text;
  text << file.rdbuf();
  return *Json::parse(text.str());
}

std::vector<double> reals(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items()) values.push_back(item.as_real());
  return values;
}

struct Llama {
  static constexpr int kFirstOfLayer[] = {1, 10};  // numbers of the first parameters
  static constexpr int kFirstOfHead = 19;

  Llama()
      : tiny({.batch = 2,
              .seq = 40,
              .hidden = 32,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 8,
              .ffn = 48,
              .vocab = 61}),
        rope(tiny.config(), 40, at::kDouble, at::kCPU),
        embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed)),
        block(tiny.config(), tiny.unit(kBlock), tiny.flat(kBlock), 2, 40, {.product = true}, rope),
        head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), 16),
        params{formula(tiny, kEmbed, 0), formula(tiny, kBlock, kFirstOfLayer[0]),
               formula(tiny, kBlock, kFirstOfLayer[1]), formula(tiny, kHead, kFirstOfHead)},
        tokens(at::empty({2, 40}, at::kLong)),
        labels(at::empty({2, 40}, at::kLong)) {
    for (std::uint32_t i = 0; i < 80; ++i) {
      tokens.mutable_data_ptr<std::int64_t>()[i] = hashed(1000, i) % 61;
      labels.mutable_data_ptr<std::int64_t>()[i] = i < 79 ? hashed(1000, i + 1) % 61 : 0;
    }
    at::Tensor x = embedding.forward(params[0], tokens);
    for (const int layer : {0, 1}) x = block.forward(params[1 + layer], x, stash[layer]);
    last = x;
  }

  double token_loss(std::int64_t t, std::int64_t label) const {
    ExactSum loss;
    head.loss(params[3], last.narrow(0, t, 1), at::empty({1, 1}, at::kLong).fill_(label), loss);
    return loss.result();
  }

  Tiny tiny;
  Rope rope;
  Embedding embedding;
  Block block;
  Head head;
  at::Tensor params[4];
  at::Tensor tokens, labels, last;
  BlockStash stash[2];
};

TEST(Llama, LossesAndLogitsAreThoseOfHuggingFace) {
  const Json expected = golden();
  const Llama llama;
  const std::vector<double> losses = reals(*expected.find("losses"));
  ASSERT_EQ(losses.size(), 80U);
  for (std::int64_t t = 0; t < 80; ++t)
    EXPECT_NEAR(llama.token_loss(t, llama.labels.const_data_ptr<std::int64_t>()[t]),
                losses[static_cast<std::size_t>(t)], 3e-6)
        << t;
  const std::vector<double> positions = reals(*expected.find("positions"));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::vector<double> row = reals(expected.find("log_probs")->items()[i]);
    ASSERT_EQ(row.size(), 61U);
    for (std::int64_t v = 0; v < 61; ++v)
      EXPECT_NEAR(-llama.token_loss(static_cast<std::int64_t>(positions[i]), v),
                  row[static_cast<std::size_t>(v)], 3e-6);
  }
}

TEST(Llama, GradientsHaveTheNormsOfHuggingFace) {
  Llama llama;
  at::Tensor grads[4];
  for (int i = 0; i < 4; ++i) grads[i] = at::zeros_like(llama.params[i]);
  ExactSum loss;
  at::Tensor d = llama.head.loss_and_grad(llama.params[3], llama.last, llama.labels, 1.0, grads[3],
                                          true, loss);
  for (const int layer : {1, 0}) {
    BlockWork work;
    d = llama.block.input_grad(llama.params[1 + layer], std::move(llama.stash[layer]), std::move(d),
                               work);
    llama.block.weight_grad(std::move(work), grads[1 + layer], true);
  }
  llama.embedding.weight_grad(llama.tokens, d, grads[0], true);

  const std::vector<double> norms = reals(*golden().find("grad_norms"));
  ASSERT_EQ(norms.size(), 21U);
  const std::pair<int, int> units[] = {{kEmbed, 0},
                                       {kBlock, Llama::kFirstOfLayer[0]},
                                       {kBlock, Llama::kFirstOfLayer[1]},
                                       {kHead, Llama::kFirstOfHead}};
  for (int u = 0; u < 4; ++u)
    for (const arch::FlatParam& place : llama.tiny.flat(units[u].first).params) {
      const double norm = norms[static_cast<std::size_t>(units[u].second + place.param)];
      EXPECT_NEAR(grads[u].narrow(0, place.offset, place.numel).norm().item<double>(), norm,
                  2e-6 * norm)
          << units[u].second + place.param;
    }
}

}  // namespace
}  // namespace lockstep::nn
