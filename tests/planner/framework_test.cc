#include "lockstep/planner/framework.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/seek.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

struct Lack {
  const char *framework, *model, *layout, *phrase;  // "": it lacks nothing
};

// From the frameworks' own checks: what each refuses, or has no option for.
TEST(Framework, LacksWhatItsSourceLacks) {
  const Lack table[] = {
      {"megatron", "llama3-70b", "tp8 pp4 dp16 zero1 interleaved vpp5 m16", ""},
      {"megatron", "llama3-70b", "tp8 pp4 dp16 zero1 zb-h1 m16", "zb-h1"},
      {"megatron", "llama3-70b", "tp8 pp4 dp16 zero3 1f1b m16", "zero 3 under a pipeline"},
      {"megatron", "llama3-70b", "tp8 cp2 dp32 zero1 m8 cp_comm_type=ulysses", "cp 2 (ulysses)"},
      {"megatron", "llama3-70b", "tp4 cp2 dp64 zero1 m8 cp_comm_type=ulysses", ""},
      {"megatron", "llama3-70b", "tp8 dp64 zero1 m8 recompute=selective", "recompute=selective"},
      {"megatron", "llama3-70b", "tp8 pp2 dp32 zero1 1f1b m8 recompute=full:3+2", "full:3+2"},
      {"megatron", "llama3-70b", "tp8 pp2 dp32 zero1 1f1b m8 recompute=full:3x2", ""},
      {"megatron", "llama3-70b", "tp16 dp32 zero1 m8", ""},
      {"torchtitan", "llama3-70b", "tp16 dp32 zero3 m8", "tp 16 above 8 key-value heads"},
      {"torchtitan", "llama3-70b", "tp8 dp64 zero3 m8", ""},
      {"torchtitan", "llama3-70b", "tp8 dp64 zero1 m8", "zero 1 without a pipeline"},
      {"torchtitan", "llama3-70b", "tp8 cp2 dp32 zero3 m8 cp_comm_type=ring", "cp 2 (ring)"},
      {"torchtitan", "llama3-70b", "tp8 pp2 dp32 zero1 1f1b m8", "rank order"},
      {"torchtitan", "llama3-70b", "tp8 pp2 dp32 zero1 zbv vpp2 m8 order=tp,cp,dp,pp", "zbv"},
      {"torchtitan", "llama3-70b", "tp8 pp2 dp32 zero1 1f1b m8 order=tp,cp,dp,pp", ""},
      {"torchtitan", "llama3.2-1b", "pp2 dp32 zero1 1f1b m8 order=tp,cp,dp,pp", "pp 2 with this"},
      {"deepspeed", "llama3-70b", "dp64 zero3 m8", ""},
      {"deepspeed", "llama3-70b", "dp8x8 zero3 m8", "in groups"},
      {"deepspeed", "llama3-70b", "pp4 dp16 zero2 1f1b m16 order=tp,cp,dp,pp", "zero 2 under"},
      {"deepspeed", "llama3-70b", "tp2 dp64 zero1 m8", "sequence parallelism"},
      {"fsdp2", "llama3-70b", "dp64 zero3 m8", ""},
      {"fsdp2", "llama3-70b", "tp2 dp64 zero3 m8", "tp 2"},
      {"transformers", "llama3-70b", "pp2 dp64 zero0 1f1b m8 order=tp,cp,dp,pp", "pp 2"},
      {"nanotron", "llama3-70b", "tp8 pp2 dp32 zero1 1f1b m16 order=tp,cp,dp,pp", ""},
      {"nanotron", "mixtral-8x7b", "tp1 dp64 ep8 zero1 m8", "ep 8"},
      {"llm.c", "gpt2-small", "dp64 zero2 m8", "zero 2"},
      {"deepseek", "deepseek-v3", "pp16 dp32 ep32 zero1 dualpipe-v vpp2 m32", ""},
      {"deepseek", "deepseek-v3", "pp16 dp32 ep32 zero1 zb-h1 m32", "zb-h1"}};
  for (const Lack& one : table) {
    Asked asked(one.model, "h100:512", 8192, 512);
    asked.question.framework = find_framework(one.framework);
    const spec::Layout layout = *spec::parse_layout(one.layout);
    const auto request = request_of(asked.question, layout, 1);
    ASSERT_TRUE(request.ok()) << one.layout;
    std::string all;
    for (const std::string& phrase : lacking(*asked.question.framework, layout, *request))
      all += phrase + "; ";
    EXPECT_TRUE(one.phrase[0] == 0 ? all.empty() : all.find(one.phrase) != std::string::npos)
        << one.framework << " " << one.layout << ": " << all;
  }
}

// Every point that the framework runs, with nothing or everything recomputed: none is faster than
// what is found by more than simplicity costs.
void no_point_is_faster(const char* name, const char* model, const char* machine) {
  Asked asked(model, machine, 4096, 64);
  asked.question.framework = find_framework(name);
  const Finalist best = seek(asked.question).best.front();
  const Lattice lattice(asked.question);
  int points = 0;
  for (const Core& core : lattice.cores())
    for (const int pp : lattice.pipelines(core)) {
      cost::PriceRequest r = lattice.of(core);
      r.pp = pp, r.dp = lattice.data(core, pp);
      for (const std::int64_t b : lattice.microbatches(r.dp))
        for (const Sharding& sharding : lattice.shardings(core, pp))
          for (const Timetable& table : lattice.timetables(pp))
            for (const cost::Placement placement : lattice.placements(core, pp))
              for (const model::Drop& keep : lattice.drops()) {
                r.microbatch = b, r.placement = placement, r.drop = keep;
                set_sharding(asked.question, sharding, r);
                r.schedule = table.schedule, r.chunks = table.chunks;
                if (!lattice.fits(sharding, r.microbatches()) ||
                    !lattice.fits(table, pp, r.microbatches()))
                  continue;
                const Finalist timed = simulate({r, cost::price(r)});
                ++points;
                EXPECT_EQ(
                    lacking(*asked.question.framework, layout_of(timed), timed.priced.request),
                    std::vector<std::string>{});
                const double limit = timed.seconds * (1 + kTold) * (1 + 1e-9);
                EXPECT_TRUE(!timed.priced.price.fits || best.seconds <= limit)
                    << to_text(layout_of(timed)) << " against " << to_text(layout_of(best));
              }
    }
  EXPECT_GT(points, 50);
}

TEST(Framework, NothingItRunsIsFaster) {
  for (const char* name : {"megatron", "torchtitan", "deepspeed"}) {
    no_point_is_faster(name, "llama3-8b", "h100:16");
    no_point_is_faster(name, "qwen3-30b-a3b", "h100:16");
  }
  no_point_is_faster("nanotron", "llama3-8b", "h100:16");
}

}  // namespace
}  // namespace lockstep::planner
