#include "lockstep/mesh/axis.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/mesh/random_mesh.h"

namespace lockstep::mesh {
namespace {

TEST(AxisSet, SpellsTheNamedSetsByName) {
  EXPECT_EQ(to_text(AxisSet(Axis::kTensor)), "tp");
  EXPECT_EQ(to_text(AxisSet(Axis::kDataReplicate)), "dp_replicate");
  EXPECT_EQ(to_text(AxisSet()), "self");
  EXPECT_EQ(to_text(kDp), "dp");
  EXPECT_EQ(to_text(kData), "data");
  EXPECT_EQ(to_text(kDenseShard), "cp+dp_shard");
  EXPECT_EQ(to_text(kExpertData), "edp");
  EXPECT_EQ(to_text(kWorld), "world");
  EXPECT_EQ(to_text(kDp | Axis::kTensor | Axis::kContext), "tp+cp+dp");
  EXPECT_EQ(to_text(kExpertWorld), "etp+ep+pp+edp");
}

TEST(AxisSet, DifferentSetsHaveDifferentTexts) {
  std::set<std::string> texts;
  for (unsigned bits = 0; bits < 1u << kNumAxes; ++bits) {
    AxisSet set;
    for (int i = 0; i < kNumAxes; ++i)
      if ((bits >> i & 1u) != 0) set = set | static_cast<Axis>(i);
    EXPECT_TRUE(texts.insert(to_text(set)).second) << to_text(set);
  }
}

TEST(Order, EveryPermutationReadsBackAsWritten) {
  EXPECT_EQ(all_order_texts().size(), 24u);
  for (const std::string& text : all_order_texts()) EXPECT_EQ(to_text(*Order::parse(text)), text);
  EXPECT_EQ(to_text(Order()), "tp,cp,pp,dp");
}

TEST(Order, ShardIsAlwaysInsideReplicate) {
  for (const std::string& text : all_order_texts()) {
    const Order order = *Order::parse(text);
    const auto shard = std::ranges::find(order.axes(), Axis::kDataShard);
    ASSERT_LT(shard, order.axes().end() - 1);
    EXPECT_EQ(*(shard + 1), Axis::kDataReplicate) << text;
  }
}

TEST(Order, RefusesWhatIsNoPermutation) {
  const struct {
    const char* text;
    const char* message;
  } rows[] = {
      {"tp,cp,pp", "order = \"tp,cp,pp\" does not name dp"},
      {"tp,cp,pp,tp", "order = \"tp,cp,pp,tp\" names tp twice"},
      {"tp,cp,pp,dp,dp", "order = \"tp,cp,pp,dp,dp\" names dp twice"},
      {"tp, cp,pp,dp", "order = \"tp, cp,pp,dp\" names no axis with \" cp\""},
      {"tp,cp,pp,dp,", "order = \"tp,cp,pp,dp,\" names no axis with \"\""},
      {"", "order = \"\" names no axis with \"\""},
      {"tp,ep,pp,dp", "order = \"tp,ep,pp,dp\" names no axis with \"ep\""},
      {"tp,cp,pp,dp_shard", "order = \"tp,cp,pp,dp_shard\" names no axis with \"dp_shard\""},
  };
  for (const auto& [text, message] : rows) {
    const auto order = Order::parse(text);
    ASSERT_FALSE(order.ok()) << text;
    EXPECT_EQ(order.error().message, message);
    EXPECT_EQ(order.error().code, Code::kUnknownChoice);
  }
}

}  // namespace
}  // namespace lockstep::mesh
