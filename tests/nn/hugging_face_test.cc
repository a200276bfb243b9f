// Whole tiny models in f64, embedding to loss and back, against Hugging Face's (make_golden.py,
// which states the formula of the weights).
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "tests/nn/oracle.h"
#include "tests/nn/units.h"
#include "tests/support/golden.h"

namespace lockstep::nn {
namespace {

constexpr int kLayers = 2;

struct Family {
  const char* name;
  Kin kin;
};
constexpr Family kFamilies[] = {
    {"llama", Kin::kLlama},        {"gpt2", Kin::kGpt2},       {"qwen2", Kin::kQwen2},
    {"qwen3", Kin::kQwen3},        {"mistral", Kin::kMistral}, {"olmo2", Kin::kOlmo2},
    {"gemma2", Kin::kGemma2},      {"mixtral", Kin::kMixtral}, {"olmoe", Kin::kOlmoe},
    {"qwen2_moe", Kin::kQwen2Moe}, {"dots1", Kin::kDots1}};

std::uint32_t hashed(std::uint32_t p, std::uint32_t i) {
  std::uint32_t x = i * 2654435761U + p * 97531U + 12345U;
  for (const std::uint32_t factor : {0x45d9f3bU, 0x119de1f3U}) x = (x ^ (x >> 16)) * factor;
  return x ^ (x >> 16);
}

// Flat parameters of a unit whose first parameter has the number `p`; a tied one has the number 0.
at::Tensor formula(const Tiny& tiny, int unit, int p) {
  at::Tensor flat = at::empty({tiny.flat(unit).padded(1)}, at::kDouble).zero_();
  for (const model::FlatParam& place : tiny.flat(unit).params) {
    const model::Param& param = tiny.unit(unit).params[static_cast<std::size_t>(place.param)];
    const bool is_vector = param.shape.size() == 1;
    const double base = is_vector && !param.name.ends_with(".bias") ? 1.0 : 0.0;
    const double scale = is_vector ? 0.6 : 3.4 / std::sqrt(static_cast<double>(param.shape.back()));
    const auto number = static_cast<std::uint32_t>(param.tied ? 0 : p + place.param);
    for (std::int64_t i = 0; i < place.numel; ++i)
      flat.mutable_data_ptr<double>()[place.offset + i] =
          base + scale * (hashed(number, static_cast<std::uint32_t>(i)) / 4294967296.0 - 0.5);
  }
  return flat;
}

Json golden(const Family& family) {
  std::ifstream file(support::source_dir() + "/tests/golden/nn/" + family.name + "_logits.json");
  std::stringstream text;
  text << file.rdbuf();
  return *Json::parse(text.str());
}

std::vector<double> reals(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items()) values.push_back(item.as_real());
  return values;
}

Shape shape_of(const Family& family) {
  const Shape shape{.batch = 2,
                    .seq = 40,
                    .hidden = 32,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 8,
                    .ffn = 48,
                    .vocab = 61};
  return shape.as(family.kin);
}

// Embedding, two blocks and head, run forward; stages count them.
struct Whole {
  static constexpr int kStages = kLayers + 2;

  explicit Whole(const Family& family)
      : tiny(shape_of(family), /*scaled_rope=*/family.kin == Kin::kLlama),
        rope(tiny.config(), 40, at::kDouble, at::kCPU),
        embedding(tiny.config(), tiny.unit(kEmbed), tiny.flat(kEmbed)),
        head(tiny.config(), tiny.unit(kHead), tiny.flat(kHead), 16),
        tokens(at::empty({2, 40}, at::kLong)),
        labels(at::empty({2, 40}, at::kLong)) {
    for (int stage = 0, p = 0; stage < kStages; ++stage) {
      first[stage] = p;
      params[stage] = formula(tiny, kind(stage), p);
      p += static_cast<int>(tiny.unit(kind(stage)).params.size());
    }
    for (int stage = 1; stage <= kLayers; ++stage)  // local and global ones may differ
      blocks.emplace_back(tiny.config(), tiny.unit(kind(stage)), tiny.flat(kind(stage)), 2, 40,
                          model::Drop{.product = true}, rope);
    for (std::uint32_t i = 0; i < 80; ++i) {
      tokens.mutable_data_ptr<std::int64_t>()[i] = hashed(1000, i) % 61;
      labels.mutable_data_ptr<std::int64_t>()[i] = i < 79 ? hashed(1000, i + 1) % 61 : 0;
    }
    last = embedding.forward(params[0], tokens);
    for (int layer = 0; layer < kLayers; ++layer)
      last = block(layer).forward(params[1 + layer], last, stash[layer]);
  }

  int kind(int stage) const { return tiny.model.order[static_cast<std::size_t>(stage)]; }
  const Block& block(int layer) const { return blocks[static_cast<std::size_t>(layer)]; }

  double token_loss(std::int64_t t, std::int64_t label) const {
    ExactSum loss;
    head.loss(params[3], last.narrow(0, t, 1), at::empty({1, 1}, at::kLong).fill_(label), loss);
    return loss.result();
  }

  // Flat gradients of all stages; a tied weight's are together in the embedding's.
  std::vector<at::Tensor> grads() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& param : params) all.push_back(at::zeros_like(param));
    ExactSum loss;
    at::Tensor d = head.loss_and_grad(params[3], last, labels, 1.0, all[3], true, loss);
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      Kept work;
      d = block(layer).input_grad(params[1 + layer], std::move(stash[layer]), std::move(d), work);
      block(layer).weight_grad(std::move(work), all[static_cast<std::size_t>(1 + layer)], true);
    }
    embedding.weight_grad(tokens, d, all[0], true);
    const model::FlatRange tied = tiny.flat(kHead).tied;
    all[0].narrow(0, tied.begin, tied.size()).add_(all[3].narrow(0, tied.begin, tied.size()));
    return all;
  }

  Tiny tiny;
  Rope rope;
  Embedding embedding;
  Head head;
  std::vector<Block> blocks;
  int first[kStages];  // numbers of the first parameters
  at::Tensor params[kStages];
  at::Tensor tokens, labels, last;
  Kept stash[kLayers];
};

TEST(HuggingFace, LossesAndLogitsAreTheSame) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const Json expected = golden(family);
    const Whole model(family);
    double worst = 0.0;
    const auto compare = [&](double got, double wanted) {
      worst = std::max(worst, std::abs(got - wanted));
    };
    const std::vector<double> losses = reals(*expected.find("losses"));
    ASSERT_EQ(losses.size(), 80U);
    for (std::int64_t t = 0; t < 80; ++t)
      compare(model.token_loss(t, model.labels.const_data_ptr<std::int64_t>()[t]),
              losses[static_cast<std::size_t>(t)]);
    const std::vector<double> positions = reals(*expected.find("positions"));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::vector<double> row = reals(expected.find("log_probs")->items()[i]);
      ASSERT_EQ(row.size(), 61U);
      for (std::int64_t v = 0; v < 61; ++v)
        compare(-model.token_loss(static_cast<std::int64_t>(positions[i]), v),
                row[static_cast<std::size_t>(v)]);
    }
    EXPECT_LE(worst, 1e-10);
    RecordProperty(family.name, strf("%.1e", worst));
  }
}

// Of a gradient, with weights that tell its elements apart.
double weighted_sum(const at::Tensor& x) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < x.numel(); ++i)
    sum += x.const_data_ptr<double>()[i] *
           (hashed(2000, static_cast<std::uint32_t>(i)) / 4294967296.0 - 0.5);
  return sum;
}

TEST(HuggingFace, GradientsAreTheSame) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    Whole model(family);
    const std::vector<at::Tensor> grads = model.grads();
    const std::vector<double> norms = reals(*golden(family).find("grad_norms"));
    const std::vector<double> sums = reals(*golden(family).find("grad_sums"));
    std::size_t compared = 0;
    for (int stage = 0; stage < Whole::kStages; ++stage) {
      const int unit = model.kind(stage);
      for (const model::FlatParam& place : model.tiny.flat(unit).params) {
        const model::Param& param =
            model.tiny.unit(unit).params[static_cast<std::size_t>(place.param)];
        if (param.tied) continue;
        const auto number = static_cast<std::size_t>(model.first[stage] + place.param);
        const double norm = norms.at(number);
        const at::Tensor got =
            grads[static_cast<std::size_t>(stage)].narrow(0, place.offset, place.numel);
        // A bias of keys that are not turned has none: both are rounding.
        const double bound = 1e-10 * std::max(norm, 1e-3);
        EXPECT_NEAR(got.norm().item<double>(), norm, bound) << stage << " " << param.name;
        EXPECT_NEAR(weighted_sum(got), sums.at(number), bound) << stage << " " << param.name;
        ++compared;
      }
      // Selection biases have a number, but no gradient.
      compared += static_cast<std::size_t>(
          std::ranges::count(model.tiny.unit(unit).params, false, &model::Param::trained));
    }
    EXPECT_EQ(compared, norms.size());
  }
}

}  // namespace
}  // namespace lockstep::nn
