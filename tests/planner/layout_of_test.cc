#include "lockstep/planner/layout_of.h"

#include <gtest/gtest.h>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/planner/walk.h"
#include "lockstep/spec/contradictions.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

// Layouts of a walk are legal ones, and pricing the layout by its name gives the same price.
TEST(LayoutOf, IsReadBackToTheSamePrice) {
  const Asked dense("llama3-70b", "h100:512", 8192, 512);
  const Asked experts("deepseek-v3", "h800:2048", 4096, 8192);
  const Asked tight("llama3-70b", "h100:32", 8192, 64);  // some make some blocks again
  for (const Asked* asked : {&dense, &experts, &tight}) {
    const auto& model =
        asked == &experts ? *model::find("deepseek-v3") : *model::find("llama3-70b");
    const Walk found = walk(Lattice(asked->question), 40);
    ASSERT_FALSE(found.best.empty());
    for (const Priced& one : found.best) {
      const spec::Layout layout = layout_of(one.request);
      const auto microbatch = static_cast<std::int64_t>(one.request.microbatch);
      for (const auto& wrong : spec::contradictions(
               spec::request_of(model.config, layout,
                                {asked->question.seq, asked->question.global_batch, microbatch})))
        EXPECT_TRUE(wrong.is_warning) << to_text(layout) << ": " << wrong.error.message;
      const auto parsed = spec::parse_layout(to_text(layout));
      ASSERT_TRUE(parsed.ok()) << to_text(layout);
      EXPECT_EQ(*parsed, layout);
      const auto request = request_of(asked->question, *parsed, microbatch);
      ASSERT_TRUE(request.ok()) << request.error().message;
      EXPECT_EQ(cost::price_time(*request).total(), one.seconds()) << to_text(layout);
      EXPECT_EQ(cost::price_memory(*request).allocated(), one.price.memory.allocated());
    }
  }
}

// Whatever a run may recompute has a price, and comes back as it was.
TEST(LayoutOf, PricesEveryRecompute) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  for (const char* recompute :
       {"none", "selective", "full", "mlp.product", "attn_norm.output+mlp.product", "full:4x2+0x6",
        "mlp_norm.output+full:1+0x7"}) {
    const auto layout = *spec::parse_layout(join_parts("pp8 dp8 1f1b m8 recompute=", recompute));
    const auto timed = time_layout(asked.question, layout, 8);
    ASSERT_TRUE(timed.ok()) << timed.error().message;
    EXPECT_EQ(to_text(layout_of(*timed).recompute), recompute);
  }
}

TEST(LayoutOf, RefusesWhatHasNoPrice) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  for (const char* text : {"pp2 dp32 looped-bfs", "tp2 dp32 order=dp,tp,pp,cp"}) {
    const auto refused = request_of(asked.question, *spec::parse_layout(text), 1);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_FALSE(refused.error().help.empty());
  }
}

// The numbers of microbatches that the lattice gives a schedule are ones that it can be built for.
TEST(Lattice, GivesSchedulesWhatTheyTake) {
  const Asked asked("llama3-8b", "h100:64", 8192, 512);
  const Lattice lattice(asked.question);
  for (const int pp : {2, 4, 8})
    for (const Timetable& table : lattice.timetables(pp))
      for (int m = 1; m <= 20; ++m) {
        if (!lattice.fits(table, pp, m)) continue;
        const auto built =
            table.schedule->build({.coords = pp, .chunks = table.chunks, .microbatches = m});
        EXPECT_TRUE(built.ok()) << table.schedule->name << " " << pp << " " << m;
      }
}

}  // namespace
}  // namespace lockstep::planner
