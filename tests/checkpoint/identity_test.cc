#include "lockstep/checkpoint/identity.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/arch/catalog.h"
#include "lockstep/arch/user_model.h"
#include "lockstep/checkpoint/staging.h"

namespace lockstep::checkpoint {
namespace {

TEST(Identity, ModelsThatComputeDifferentlyHaveDifferentFacts) {
  std::set<std::string> digests;
  for (const arch::CatalogRow& row : arch::catalog()) {
    arch::ModelConfig renamed = row.config;
    renamed.name = "another";
    renamed.init_std = 1;
    EXPECT_EQ(arch::model_facts(renamed), arch::model_facts(row.config));
    for (const auto change : {+[](arch::ModelConfig& c) { c.layers += 1; },
                              +[](arch::ModelConfig& c) { c.norm_eps *= 1 + 1e-15; },
                              +[](arch::ModelConfig& c) { c.tied = !c.tied; },
                              +[](arch::ModelConfig& c) { c.window += 8; }}) {
      arch::ModelConfig other = row.config;
      change(other);
      EXPECT_NE(arch::model_facts(other), arch::model_facts(row.config)) << row.config.name;
    }
    digests.insert(to_hex(digest_of(arch::model_facts(row.config))));
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

TEST(Staging, IsAlignedAndZero) {
  const Staging some(5000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(some.data()) % 4096, 0u);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(some.data()[i], std::byte{0});
  EXPECT_EQ(Staging(0).data(), nullptr);
}

}  // namespace
}  // namespace lockstep::checkpoint
