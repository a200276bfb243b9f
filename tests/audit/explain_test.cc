#include "lockstep/audit/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::audit {
namespace {

// Two data ranks, two microbatches each, a sample in each; gradients of two tensors, drawn.
class Explain : public testing::Test {
 protected:
  Explain() {
    dump_.data_ranks = dump_.ranks = 2;
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    const std::int64_t live[] = {8, 5, 3, 1};
    for (int i = 0; i < 4; ++i) {
      Sample sample = {i / 2, i % 2, std::vector<std::int64_t>(8, 1),
                       std::vector<std::int64_t>(8, -100)};
      std::fill_n(sample.labels.begin(), live[i], 1);
      dump_.samples.push_back(sample);
      Step step;
      for (const char* name : {"embed.weight", "norm.weight"})
        for (int j = 0; j < 64; ++j) step.gradients[name].push_back(normal(random));
      step.loss = 1 + i;
      samples_.push_back(step);
    }
    for (const char* name : {"embed.weight", "norm.weight"})
      dump_.gradients.push_back({name, {8, 8}, std::vector<double>(64)});
    truth_ = mean({8 / 17.0, 5 / 17.0, 3 / 17.0, 1 / 17.0});
    for (const auto& [name, values] : truth_.gradients)
      truth_.grad_norm = std::hypot(truth_.grad_norm, norm_of(values));
    bounds_ = bounds_of(dump_, truth_, truth_);
  }

  Step mean(const std::vector<double>& weights) const {
    Step made;
    for (const Tensor& tensor : dump_.gradients) {
      std::vector<double>& sum = made.gradients[tensor.name];
      sum.resize(64);
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 64; ++j)
          sum[j] += weights[i] * samples_[i].gradients.at(tensor.name)[j];
    }
    return made;
  }

  std::vector<Explanation> of(const Step& found, double factor = 1) {
    for (Tensor& tensor : dump_.gradients) {
      tensor.values = found.gradients.at(tensor.name);
      for (double& value : tensor.values) value *= factor;
    }
    const Evidence evidence = {dump_, truth_, bounds_, samples_};
    return explain(evidence);
  }

  Dump dump_;
  std::vector<Step> samples_;
  Step truth_;
  Bounds bounds_;
};

TEST_F(Explain, NothingOfARightStep) { EXPECT_TRUE(of(truth_).empty()); }

TEST_F(Explain, MeansAreToldFromOneAnother) {
  EXPECT_EQ(of(mean({0.25, 0.25, 0.25, 0.25}))[0].what,
            "the mean of the means of microbatches, in place of the mean over all labels");
  EXPECT_EQ(of(mean({4 / 13.0, 2.5 / 13, 3 / 8.0, 1 / 8.0}))[0].what,
            "the mean of the means of data ranks, in place of the mean over all labels");
}

// With a sample in every microbatch both means are the same gradient.
TEST_F(Explain, WhatCannotBeToldApartIsListed) {
  const auto found = of(mean({0.25, 0.25, 0.25, 0.25}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[1].what.find("means of samples"), std::string::npos);
}

TEST_F(Explain, FactorsHaveNames) {
  const auto found = of(truth_, 0.25);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].what.find("divided once too often by the microbatches of all data ranks, 4"),
            std::string::npos)
      << found[0].what;
  EXPECT_EQ(found[0].fitted, 0);
  EXPECT_NE(found[0].what.find("; or by the samples of the batch, 4"), std::string::npos);
  EXPECT_EQ(of(truth_, 0.3711)[0].fitted, 1);
}

TEST_F(Explain, FewestNumbersFirst) {
  const auto found = of(mean({8 / 17.0, 5 / 17.0, 0, 0}));
  ASSERT_EQ(found.size(), 1U);  // that rank 1 is missing is the same
  EXPECT_EQ(found[0].fitted, 0);
  EXPECT_EQ(found[0].what, "only data rank 0");
}

TEST_F(Explain, OneTensorHasAFaultOfItsOwn) {
  Step found = truth_;
  for (double& value : found.gradients["norm.weight"]) value *= 2;
  const auto explained = of(found);
  ASSERT_FALSE(explained.empty());
  EXPECT_NE(explained[0].what.find("norm.weight: x 2"), std::string::npos) << explained[0].what;
  found = truth_;
  found.gradients["norm.weight"].assign(64, 0);
  EXPECT_EQ(of(found)[0].what, "norm.weight: gradient is zero");
}

TEST_F(Explain, NoiseIsExplainedByNothing) {
  Step found = truth_;
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  for (auto& [name, values] : found.gradients)
    for (double& value : values) value += 0.1 * normal(random);
  EXPECT_TRUE(of(found).empty());
}

}  // namespace
}  // namespace lockstep::audit
