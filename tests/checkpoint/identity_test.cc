#include "lockstep/checkpoint/identity.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/user_model.h"
#include "tests/support/model_named.h"

namespace lockstep::checkpoint {
namespace {

TEST(Identity, ModelsThatComputeDifferentlyHaveDifferentFacts) {
  std::set<std::string> digests;
  for (const model::CatalogRow& row : model::catalog()) {
    model::ModelConfig renamed = row.config;
    renamed.name = "another";
    renamed.init_std = 1;
    EXPECT_EQ(model::model_facts(renamed), model::model_facts(row.config));
    for (const auto change : {+[](model::ModelConfig& c) { c.layers += 1; },
                              +[](model::ModelConfig& c) { c.norm_eps *= 1 + 1e-15; },
                              +[](model::ModelConfig& c) { c.tied = !c.tied; },
                              +[](model::ModelConfig& c) { c.window += 8; }}) {
      model::ModelConfig other = row.config;
      change(other);
      EXPECT_NE(model::model_facts(other), model::model_facts(row.config)) << row.config.name;
    }
    digests.insert(to_hex(digest_of(model::model_facts(row.config))));
  }
  EXPECT_GT(digests.size(), 10u);
}

TEST(Identity, WhatDiffersIsShownWithBothValues) {
  const Facts there = {{"a", "1"}, {"b", "2"}, {"c", "3"}},
              here = {{"a", "1"}, {"b", "x"}, {"d", "4"}};
  EXPECT_TRUE(check_same("model", "p", there, there).ok());
  const auto refused = check_same("model", "p", there, here);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kOtherCheckpoint);
  EXPECT_EQ(
      refused.error().message,
      "`p` is of another model: b is 2 there and x here; c is 3 there and (absent) here; d is "
      "(absent) there and 4 here (digest " +
          to_hex(digest_of(there)) + " there, " + to_hex(digest_of(here)) + " here)");
}

TEST(Identity, ACheckpointHoldsTheModelThatItNames) {
  const model::ModelConfig config = model::model_named("llama-tiny").value();
  const model::Model model = model::describe(config).value();
  Manifest weights;
  weights.model = model::model_facts(config);
  for (const Slice& slice : model_slices(model, Role::kWeight))
    weights.tensors.push_back({slice.tensor, Role::kWeight, {}, slice.shape, {}});
  Manifest training = weights;
  training.config = {{"seed", "1"}};
  for (const Role role : {Role::kFirstMoment, Role::kSecondMoment})
    for (const TensorRecord& tensor : weights.tensors) {
      training.tensors.push_back(tensor);
      training.tensors.back().role = role;
    }
  EXPECT_TRUE(check_holds_model(weights, "p").ok());
  EXPECT_TRUE(check_holds_model(training, "p").ok());
  for (const Manifest& whole : {weights, training}) {
    for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
      Manifest less = whole, other = whole;
      less.tensors.erase(less.tensors.begin() + static_cast<std::ptrdiff_t>(i));
      const auto refused = check_holds_model(less, "p");
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::kBadManifest);
      EXPECT_NE(refused.error().message.find(whole.tensors[i].name), std::string::npos);
      other.tensors[i].shape[0] += 1;
      EXPECT_FALSE(check_holds_model(other, "p").ok());
    }
    Manifest none = whole, unknown = whole, tall = whole;
    none.tensors.clear();
    EXPECT_FALSE(check_holds_model(none, "p").ok());
    unknown.model = {{"layers", "2"}};
    EXPECT_FALSE(check_holds_model(unknown, "p").ok());
    for (auto& [key, value] : tall.model)
      if (key == "layers") value = "2000000000";
    EXPECT_FALSE(check_holds_model(tall, "p").ok());
  }
  weights.config = training.config;
  EXPECT_EQ(check_holds_model(weights, "p").error().message.substr(0, 40),
            "`p` has no first_moment of tensor `embed");
}

TEST(Staging, IsAlignedAndZero) {
  const Staging some(5000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(some.data()) % 4096, 0u);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(some.data()[i], std::byte{0});
  EXPECT_EQ(Staging(0).data(), nullptr);
}

// Earlier versions wrote lr with 17 digits.
TEST(Identity, TheSameNumberInOtherDigitsIsTheSame) {
  const Facts old = {{"lr", "0.00050000000000000001"}, {"decay", "cosine"}};
  EXPECT_TRUE(check_same("configuration", "p", old, {{"lr", "5e-4"}, {"decay", "cosine"}}).ok());
  EXPECT_FALSE(check_same("configuration", "p", old, {{"lr", "5.1e-4"}, {"decay", "cosine"}}).ok());
  EXPECT_FALSE(check_same("configuration", "p", old, {{"lr", "5e-4"}, {"decay", "nan"}}).ok());
}

}  // namespace
}  // namespace lockstep::checkpoint
