#include <gtest/gtest.h>

#include <initializer_list>

#include "lockstep/model/catalog.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {
namespace {

using model::describe;
using model::find;
using model::Model;
using model::ModelConfig;
using model::UnitSizes;

class UnitTraffic : public testing::Test {
 protected:
  std::vector<Collective> of(int unit, UnitPass pass) const {
    return UnitPasses(model_.config, model_.unit(unit), sizes_).collectives(pass);
  }
  // Bytes of T h elements that one rank sends, (t - 1) / t of them.
  std::int64_t volume() const {
    return sizes_.tokens() * model_.config.hidden * sizes_.width() / sizes_.tp * (sizes_.tp - 1);
  }
  std::int64_t sent_in(int unit, std::initializer_list<UnitPass> passes) const {
    std::int64_t sum = 0;
    for (const UnitPass pass : passes) sum += sent(of(unit, pass));
    return sum;
  }
  std::string text(int unit, UnitPass pass) const {
    std::string all;
    for (const Collective& collective : of(unit, pass))
      all += std::string(to_text(collective.kind)) + " " + collective.name + "\n";
    return all;
  }
  int head() const { return model_.num_units() - 1; }

  Model model_ = *describe(find("llama3-405b")->config);
  UnitSizes sizes_{.seq = 8192, .dtype = DType::kBF16, .tp = 8};
};

TEST_F(UnitTraffic, ABlockSendsEightTenOrTwelveVolumes) {
  for (const std::int64_t tp : {2, 4, 8}) {
    sizes_.tp = tp;
    const auto whole = [&] { return sent_in(1, {UnitPass::kForward, UnitPass::kBackward}); };
    const auto split = [&] {
      return sent_in(1, {UnitPass::kForward, UnitPass::kInputGrad, UnitPass::kWeightGrad});
    };
    sizes_.sequence_parallel = false;
    EXPECT_EQ(whole(), 8 * volume());
    EXPECT_EQ(split(), 8 * volume());
    EXPECT_EQ(sent_in(1, {UnitPass::kRecompute}), 2 * volume());
    sizes_.sequence_parallel = true;
    EXPECT_EQ(whole(), 10 * volume());
    EXPECT_EQ(split(), 12 * volume());
    EXPECT_EQ(sent_in(1, {UnitPass::kRecompute}), 3 * volume());
  }
}

TEST_F(UnitTraffic, OrderIsThatOfThePasses) {
  EXPECT_EQ(text(1, UnitPass::kForward), "all_reduce middle\nall_reduce out\n");
  EXPECT_EQ(text(1, UnitPass::kInputGrad), "all_reduce d_mlp_normed\nall_reduce d_attn_normed\n");
  EXPECT_EQ(text(1, UnitPass::kWeightGrad), "");
  sizes_.sequence_parallel = true;
  const std::string forward =
      "all_gather attn_normed\nreduce_scatter middle\nall_gather mlp_normed\nreduce_scatter out\n";
  for (const UnitPass pass : {UnitPass::kForward, UnitPass::kCheckpoint, UnitPass::kEvaluate})
    EXPECT_EQ(text(1, pass), forward);
  EXPECT_EQ(text(1, UnitPass::kInputGrad),
            "all_gather d_out\nreduce_scatter d_mlp_normed\nall_gather d_middle\n"
            "reduce_scatter d_attn_normed\n");
  EXPECT_EQ(
      text(1, UnitPass::kWeightGrad),
      "all_gather d_out\nall_gather mlp_normed\nall_gather d_middle\nall_gather attn_normed\n");
  EXPECT_EQ(text(1, UnitPass::kBackward),
            "all_gather d_out\nall_gather mlp_normed\nreduce_scatter d_mlp_normed\n"
            "all_gather d_middle\nall_gather attn_normed\nreduce_scatter d_attn_normed\n");
}

// Three numbers a token and rank beside the volumes of the rows.
TEST_F(UnitTraffic, TheEndsSendTheirRowsAndThreeNumbersALogitRow) {
  for (const std::int64_t chunk : {0, 1000, 8192}) {
    sizes_.head_chunk = chunk;
    const std::int64_t numbers = 3 * 8192 * 4 * 7;  // f32, whatever the logits come from
    sizes_.sequence_parallel = false;
    EXPECT_EQ(sent_in(head(), {UnitPass::kEvaluate}), numbers);
    EXPECT_EQ(sent_in(head(), {UnitPass::kBackward}), numbers + 2 * volume());
    EXPECT_EQ(sent_in(0, {UnitPass::kForward}), 2 * volume());
    EXPECT_EQ(sent_in(0, {UnitPass::kWeightGrad}), 0);
    sizes_.sequence_parallel = true;
    EXPECT_EQ(sent_in(head(), {UnitPass::kEvaluate}), numbers + volume());
    EXPECT_EQ(sent_in(head(), {UnitPass::kBackward}), numbers + 2 * volume());
    EXPECT_EQ(sent_in(0, {UnitPass::kForward}), volume());
    EXPECT_EQ(sent_in(0, {UnitPass::kWeightGrad}), volume());
    EXPECT_EQ(of(head(), UnitPass::kBackward).size(), chunk == 1000 ? 2 + 9 : 2 + 1);
  }
}

TEST_F(UnitTraffic, OneRankSendsNothing) {
  sizes_.tp = 1;
  for (const bool sp : {false, true}) {
    sizes_.sequence_parallel = sp;
    for (const UnitPass pass : {UnitPass::kForward, UnitPass::kRecompute, UnitPass::kInputGrad,
                                UnitPass::kWeightGrad, UnitPass::kBackward})
      EXPECT_TRUE(of(1, pass).empty());
    EXPECT_TRUE(of(head(), UnitPass::kBackward).empty());
    EXPECT_TRUE(of(0, UnitPass::kForward).empty());
  }
}

// An all_reduce of a number of elements that the ranks do not divide pads it, as the ledger counts.
TEST_F(UnitTraffic, SumsArePaddedToTheNumberOfRanks) {
  model_ = *describe([] {
    ModelConfig c = find("llama-tiny")->config;
    c.hidden = 63;
    return c;
  }());
  sizes_ = {.seq = 5, .tp = 2};
  EXPECT_EQ(sent_in(1, {UnitPass::kForward}), 2 * 2 * 158 * 4);
}

}  // namespace
}  // namespace lockstep::parts
