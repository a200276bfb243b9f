#include "lockstep/audit/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lockstep/model/hf_names.h"

namespace lockstep::audit {
namespace {

// A tiny model with drawn weights, and four samples with 8, 5, 2 and 0 labels that count.
Dump drawn(bool tied) {
  model::ModelConfig config = model::usual(model::Family::kLlama);
  config.name = "tiny";
  config.layers = 2;
  config.hidden = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 24;
  config.vocab = 13;
  config.max_positions = 32;
  config.tied = tied;
  Dump dump;
  dump.model = model::describe(config).value();
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 0.2);
  model::for_each_hf_tensor(dump.model, [&](const model::HfTensor& tensor) {
    dump.weights.push_back({tensor.name, tensor.shape, {}});
    for (std::int64_t i = 0; i < numel(tensor.shape); ++i)
      dump.weights.back().values.push_back((tensor.shape.size() == 1) + normal(random));
  });
  dump.gradients = dump.weights;
  for (const int live : {8, 5, 2, 0}) {
    Sample sample = {0, static_cast<int>(dump.samples.size()), {}, {}};
    for (int i = 0; i < 8; ++i) {
      sample.tokens.push_back(static_cast<std::int64_t>(random() % 13));
      sample.labels.push_back(i < live ? static_cast<std::int64_t>(random() % 13) : -100);
    }
    dump.samples.push_back(sample);
  }
  return dump;
}

// Relative, of two gradients of one tensor.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  return distance(a, b) / norm_of(b);
}

TEST(Reference, SamplesAddUpToTheStep) {
  const Dump dump = drawn(false);
  const Reference reference(dump);
  const Step step = reference.step(DType::kF64).value();
  const std::vector<Step> samples = reference.samples(DType::kF64).value();
  double squares = 0;
  for (const Tensor& tensor : dump.weights) {
    std::vector<double> sum(tensor.values.size());
    for (std::size_t i = 0; i < samples.size(); ++i)
      for (std::size_t j = 0; j < sum.size(); ++j)
        sum[j] += static_cast<double>(dump.samples[i].live()) / 15 *
                  samples[i].gradients.at(tensor.name)[j];
    EXPECT_LT(apart(sum, step.gradients.at(tensor.name)), 1e-12) << tensor.name;
    squares += std::pow(norm_of(sum), 2);
  }
  EXPECT_NEAR(std::sqrt(squares) / step.grad_norm, 1, 1e-12);
}

TEST(Reference, SharesOfTensorRanksAddUpToTheStep) {
  const Dump dump = drawn(false);
  const Reference reference(dump);
  const Step step = reference.step(DType::kF64).value();
  const std::vector<Gradients> shares = reference.shares(DType::kF64, 2);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_EQ(shares[0].size(), 5U);  // two norms a block, and the last one
  for (const auto& [name, share] : shares[0]) {
    std::vector<double> sum = share;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += shares[1].at(name)[i];
    EXPECT_LT(apart(sum, step.gradients.at(name)), 1e-12) << name;
    EXPECT_GT(apart(share, step.gradients.at(name)), 1e-3) << name;
  }
  EXPECT_TRUE(reference.shares(DType::kF64, 3).empty());
}

TEST(Reference, EndsOfATiedWeightAddUp) {
  const Dump dump = drawn(true);
  const Reference reference(dump);
  const Step step = reference.step(DType::kF64).value();
  const Step ends = reference.untied(DType::kF64).value().value();
  const std::string& embedding = dump.weights.front().name;
  std::vector<double> sum = ends.gradients.at(embedding);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += ends.gradients.at("lm_head.weight")[i];
  EXPECT_LT(apart(sum, step.gradients.at(embedding)), 1e-12);
  EXPECT_FALSE(Reference(drawn(false)).untied(DType::kF64).value().has_value());
}

TEST(Reference, LabelsMove) {
  Dump dump = drawn(false);
  const Step moved = Reference(dump).with_labels_moved(DType::kF64, 1).value().value();
  for (Sample& sample : dump.samples) {
    sample.labels.erase(sample.labels.begin());
    sample.labels.push_back(-100);
  }
  const Step step = Reference(dump).step(DType::kF64).value();
  EXPECT_EQ(moved.loss, step.loss);
  EXPECT_EQ(moved.gradients, step.gradients);
  for (Sample& sample : dump.samples) sample.labels.assign(8, -100);
  EXPECT_FALSE(Reference(dump).with_labels_moved(DType::kF64, 1).value().has_value());
}

}  // namespace
}  // namespace lockstep::audit
