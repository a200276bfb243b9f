#include "lockstep/spec/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::spec {
namespace {

TEST(Recompute, CountsBlocksOnlyWhereSomeAre) {
  for (const model::Drop& rest : {model::kKeepAll, model::kSelective}) {
    const Recompute some = with_blocks(rest, {4, 4}, {4, 0});
    EXPECT_EQ(some.blocks, (std::vector<int>{4, 0}));
    EXPECT_TRUE(some.drop.block);
    EXPECT_EQ(some.drop.rest(), rest);
    EXPECT_EQ(with_blocks(rest, {4, 4}, {0, 0}), Recompute{rest});
    EXPECT_EQ(with_blocks(rest, {4, 4}, {4, 4}) == Recompute{model::kWholeBlock},
              rest == model::kKeepAll);
  }
}

TEST(LayoutName, SaysOneWordPerSetting) {
  Layout layout;
  EXPECT_EQ(to_text(layout), "dp1 zero1");
  layout.degrees = {.pp = 2, .dp = 4, .dp_shard = 2};
  layout.zero = 3;
  layout.microbatches = 4;
  layout.reduce = Period::kMicrobatch;
  layout.recompute = {model::kSelective};
  EXPECT_EQ(to_text(layout), "pp2 dp2x2 zero3 1f1b m4 recompute=selective");
  layout.resident = 2;
  layout.prefetch = 0;
  layout.recompute = {model::kWholeBlock, {3, 3, 1, 0}};
  EXPECT_EQ(to_text(layout.recompute), "full:3x2+1+0");
  layout.recompute.drop.attn_normed = true;
  EXPECT_EQ(to_text(layout.recompute), "attn_norm.output+full:3x2+1+0");
  layout.recompute = {{.product = true}};
  layout.degrees.tp = 2;
  layout.sp = false;
  EXPECT_EQ(to_text(layout),
            "tp2 pp2 dp2x2 nosp zero3 1f1b m4 recompute=mlp.product resident=2 prefetch=0");
}

Layout random_layout(std::mt19937& random) {
  const auto pick = [&](int most) { return static_cast<int>(random() % unsigned(most)) + 1; };
  const auto maybe = [&](int most) {
    return random() % 2 == 0 ? std::nullopt : std::optional(pick(most));
  };
  Layout l;
  l.degrees = {.tp = pick(3), .cp = pick(2), .pp = pick(4), .ep = pick(2), .etp = pick(3)};
  l.context = model::kCpMethods[random() % model::kCpMethods.size()];
  const int shard = pick(4);
  l.degrees.dp = shard * pick(4);
  if (random() % 2 == 0) l.degrees.dp_shard = shard;
  if (random() % 4 == 0) l.order = *mesh::Order::parse("dp,tp,pp,cp");
  l.sp = random() % 3 != 0;
  l.zero = pick(4) - 1;
  l.schedule = schedule_names()[random() % schedule_names().size()];
  l.chunks = pick(3);
  l.reduce = random() % 2 == 0 ? Period::kStep : Period::kMicrobatch;
  const auto rows = random() % 9;  // 8: the whole block
  l.recompute = {{(rows & 1) != 0, (rows & 2) != 0, (rows & 4) != 0, rows == 8}};
  if (random() % 3 == 0) {
    l.recompute.drop.block = true;
    for (int stage = pick(4); stage > 0; --stage) l.recompute.blocks.push_back(pick(9) - 1);
  }
  l.resident = maybe(3);
  if (const auto early = maybe(3)) l.prefetch = *early - 1;
  if (const auto m = maybe(8)) l.microbatches = *m;
  for (int stage = 0; random() % 4 == 0 && stage < pick(4); ++stage) l.layers.push_back(pick(20));
  return l;
}

TEST(LayoutName, IsReadBackInAnyOrderOfWords) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const Layout layout = random_layout(random);
    const std::string name = to_text(layout);
    const auto parsed = parse_layout(name);
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().message;
    ASSERT_EQ(*parsed, layout) << name << " became " << to_text(*parsed);
    std::vector<std::string> words;
    for (std::size_t at = 0; at < name.size();) {
      const std::size_t end = std::min(name.find(' ', at), name.size());
      words.push_back(name.substr(at, end - at));
      at = end + 1;
    }
    std::shuffle(words.begin(), words.end(), random);
    std::string shuffled = " ";
    for (const std::string& word : words) shuffled += word + "  ";
    ASSERT_EQ(*parse_layout(shuffled), layout) << shuffled;
  }
}

TEST(LayoutName, SaysHowRanksOfASequenceMeet) {
  Layout layout{.degrees = {.cp = 2}};
  EXPECT_EQ(to_text(layout), "cp2 dp1 zero1 cp_comm_type=ring");
  layout.context = model::CpMethod::kUlysses;
  EXPECT_EQ(to_text(layout), "cp2 dp1 zero1 cp_comm_type=ulysses");
  EXPECT_EQ(*parse_layout("cp2 cp_comm_type=ulysses"), layout);
}

TEST(LayoutName, CountsEqualStages) {
  EXPECT_EQ(parse_layout("pp4 layers=9x2+8+6")->layers, (std::vector<int>{9, 9, 8, 6}));
  EXPECT_EQ(layers_text({9, 9, 8, 6}), "9x2+8+6");
  for (const char* wrong : {"", "9+", "+9", "9x", "x2", "9x0", "-1", "9 ", "9x99999999", "a"})
    EXPECT_FALSE(parse_layers(wrong).ok()) << wrong;
}

TEST(LayoutName, LeavesDefaultsOut) {
  EXPECT_EQ(*parse_layout("dp1"), Layout());
  EXPECT_EQ(parse_layout("zero1")->reduce, Period::kStep);
  EXPECT_EQ(parse_layout("zero2")->reduce, Period::kMicrobatch);
  EXPECT_EQ(parse_layout("zero3 step")->reduce, Period::kStep);
  EXPECT_EQ(parse_layout("recompute=none zero0")->reduce, Period::kStep);
}

TEST(LayoutName, RefusesWithTheNearestWords) {
  const auto refusal = [](const char* text) {
    const auto parsed = parse_layout(text);
    EXPECT_FALSE(parsed.ok()) << text;
    return parsed.ok() ? "" : parsed.error().message + " | " + parsed.error().help;
  };
  EXPECT_EQ(refusal("dp2 pp=4"), "a layout has no word `pp=4` | did you mean `pp4`?");
  EXPECT_EQ(refusal("zer3"), "a layout has no word `zer3` | did you mean `zero3`?");
  EXPECT_EQ(refusal("1f1p"), "a layout has no word `1f1p` | did you mean `1f1b`?");
  EXPECT_EQ(refusal("hello-there"),
            "a layout has no word `hello-there` | a layout is written like `pp2 dp2x2 zero3 1f1b "
            "m4 recompute=selective`");
  EXPECT_EQ(refusal("zero4"), "`zero4` in a layout: 4 is out of range | the nearest: `zero3`");
  EXPECT_EQ(refusal("pp0"), "`pp0` in a layout: 0 is out of range | the nearest: `pp1`");
  EXPECT_EQ(refusal("pp2 dp2 pp4"), "a layout names both `pp2` and `pp4` | keep one of the two");
  EXPECT_EQ(refusal("dp4 dp2x2"), "a layout names both `dp4` and `dp2x2` | keep one of the two");
  EXPECT_EQ(refusal("gpipe 1f1b"), "a layout names both `gpipe` and `1f1b` | keep one of the two");
  EXPECT_EQ(refusal("cp_comm_type=gathr"),
            "cp_comm_type = \"gathr\" is no way of context parallelism | did you mean `gather`?");
  EXPECT_EQ(
      refusal("cp_comm_type=a2a"),
      "cp_comm_type = \"a2a\" is no way of context parallelism | there are `ring`, `gather` and "
      "`ulysses`");
  EXPECT_EQ(refusal("recompute=selectiv"),
            "recompute = \"selectiv\" names no row `selectiv` | did you mean `selective`?");
  EXPECT_EQ(refusal("recompute=block"),
            "recompute = \"block\" names no row `block` | it is called `full`: whole blocks are "
            "made again");
  EXPECT_EQ(refusal("recompute=full+mlp.product"),
            "recompute = \"full+mlp.product\" joins `full` to something else | write recompute = "
            "\"full\" alone, or rows alone");
  EXPECT_EQ(
      refusal("pp2 recompute=selective+full:3y2"),
      "recompute = \"selective+full:3y2\": `3y2` is not a number of blocks | write how many of "
      "each stage, joined by +, as `full:3x2+1+0`: 3 of two stages, then 1 and none");
  for (const char* wrong :
       {"", "  ", "pp", "pp2x2", "dp2x", "dpx2", "dp2x-1", "dp0x2", "pp99999999999999999999", "m-1",
        "recompute=", "recompute=full:", "recompute=none+full:1", "recompute=+full:1",
        "recompute=full:1+cheap", "recompute=selectiveblock:1", "recompute=mlp.product+",
        "order=tp", "dp70000x70000"})
    EXPECT_FALSE(parse_layout(wrong).ok()) << wrong;
}

TEST(Layout, CutsTheBatchIntoItsMicrobatches) {
  Layout layout{.degrees = {.dp = 2}};
  const Batch batch{.seq = 16, .global_batch = 16, .microbatch = 1};
  EXPECT_EQ(cut(batch, layout), batch);
  EXPECT_EQ(num_microbatches(layout, batch), 8);
  layout.microbatches = 4;
  EXPECT_EQ(cut(batch, layout).microbatch, 2);
  EXPECT_EQ(num_microbatches(layout, cut(batch, layout)), 4);
}

}  // namespace
}  // namespace lockstep::spec
