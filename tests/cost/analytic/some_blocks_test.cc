// Requests in which some blocks of each rank keep their input alone and the others more: memory and
// time between the two, and how few are enough.
#include <gtest/gtest.h>

#include "lockstep/cost/analytic/layer_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "tests/cost/analytic/requests.h"
#include "tests/cost/programs.h"

namespace lockstep::cost {
namespace {

constexpr int kBlocks = 5;  // of either rank

// Bytes at the peak of the first rank when its first blocks are made again, as the program itself
// holds them.
double walked(int recomputed, bool cheap) {
  model::ModelConfig config = model::find("llama3-8b")->config;
  config.layers = 2 * kBlocks;
  const model::Model model = *model::describe(config);
  std::vector<bool> recompute(static_cast<std::size_t>(model.num_units()), false);
  for (int block = 1; block <= recomputed; ++block)
    recompute[static_cast<std::size_t>(block)] = true;
  const program::Program program =
      program_of({.pp = 2, .microbatches = 4, .recompute = recompute}, model.num_units());
  StepSizes sizes{.unit = {.seq = 4096, .dtype = DType::kBF16}};
  sizes.unit.drop = {cheap, cheap, cheap};
  const program::ProgramBytes bytes = program_bytes(model, program.step, sizes);
  return static_cast<double>(program::walk(program, {0}, bytes).peak);
}

Memory priced(Rig& rig, int recomputed, bool cheap) {
  PriceRequest& r = rig.request;
  rig.shape.layers = 2 * kBlocks;
  r.seq = 4096, r.global_batch = 4, r.pp = 2, r.zero = 0;
  r.drop = cheap ? model::kSelective : model::kKeepAll;
  r.set_recomputed(recomputed);
  return stage_memory(r, 0);
}

// Every block that is made again frees what the program frees: of a block's bytes the two differ by
// a hundredth. So does what the last one costs, for which no other lets go of anything.
TEST(SomeBlocks, FreeWhatTheProgramFrees) {
  Rig rig("llama3-8b", "h100:8");
  for (const bool cheap : {false, true}) {
    const double block = walked(0, false) - walked(1, false);
    for (int recomputed = 1; recomputed <= kBlocks; ++recomputed) {
      const double freed = walked(recomputed - 1, cheap) - walked(recomputed, cheap);
      const double said = priced(rig, recomputed - 1, cheap).allocated() -
                          priced(rig, recomputed, cheap).allocated();
      EXPECT_NEAR(said / block, freed / block, 0.01) << recomputed << (cheap ? ", cheap" : "");
    }
  }
}

// Where all keep their input alone, rows that are named are dropped while they are recomputed.
TEST(SomeBlocks, DropRowsWhileTheyAreRecomputed) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.pp = 2, r.drop = model::kWholeBlock;
  const double alone = stage_memory(r, 0).allocated();
  r.recomputed = rig.shape.layers;
  EXPECT_EQ(stage_memory(r, 0).allocated(), alone);
  r.drop = model::kSelective, r.drop.block = true;
  EXPECT_LT(stage_memory(r, 0).allocated(), alone);
}

TEST(SomeBlocks, AreAsFewAsTryingAllFinds) {
  int some = 0;
  for (const char* name : {"llama3-70b", "mixtral-8x7b", "deepseek-v3"})
    for (const char* pipe : {"1f1b", "zb-h1", "gpipe"})
      for (const model::Drop& others : {model::kKeepAll, model::kSelective})
        for (const int b : {1, 2, 4, 8}) {
          Rig rig(name, "b200:64");
          PriceRequest& r = rig.request;
          r.tp = 8, r.pp = 4, r.dp = 8, r.seq = 8192, r.global_batch = 256, r.microbatch = b;
          if (rig.shape.has_experts()) r.ep = 8;
          r.schedule = &pipeline::row(pipe), r.drop = others;
          const auto fits = [&](int recomputed) {
            r.set_recomputed(recomputed);
            return device_bytes(price_memory(r)) <= capacity_bytes(rig.machine.device);
          };
          const int most = (rig.shape.layers + r.pp - 1) / r.pp;
          int fewest = 0;
          while (fewest <= most && !fits(fewest)) ++fewest;
          r.drop.block = true, r.recomputed = 3;  // are not read
          const std::optional<int> found = least_recomputed(r);
          EXPECT_EQ(found.value_or(most + 1), fewest) << name << " " << b;
          some += fewest > 0 && fewest < most ? 1 : 0;
        }
  EXPECT_GT(some, 10);
}

// A mean of blocks is a mean of their times, term by term, but for what computation hides a part of
// and for what follows from all; all of them are all.
TEST(SomeBlocks, TakeTheirShareOfTheTime) {
  for (const char* name : {"llama3-70b", "mixtral-8x7b"}) {
    Rig rig(name, "h100:64");
    PriceRequest& r = rig.request;
    r.tp = 8, r.dp = 8, r.seq = 8192, r.global_batch = 64;
    r.drop = model::kSelective;
    const StepTime none = price_time(r);
    const int layers = rig.shape.layers;
    r.set_recomputed(layers);
    const StepTime all = price_time(r);
    for (const int recomputed : {1, layers / 2, layers - 1, layers}) {
      r.recomputed = recomputed;
      const StepTime some = price_time(r);
      const double share = double(recomputed) / layers;
      for (const StepTerm& term : kStepTerms) {
        if (term.seconds == &StepTime::data || term.seconds == &StepTime::spread) continue;
        EXPECT_NEAR(some.*term.seconds,
                    share * all.*term.seconds + (1 - share) * none.*term.seconds,
                    1e-9 * all.total())
            << term.name;
      }
      EXPECT_GT(some.total(), none.total());
    }
    // Beside the blocks, the rows that they drop once more.
    r.drop = model::kWholeBlock, r.recomputed = 0;
    EXPECT_NEAR(all.recompute - price_time(r).recompute, none.recompute, 1e-9 * all.total());
  }
}

// Rows that are recomputed take their share of what all of them take, so they add up.
TEST(SomeBlocks, RowsAddUpToTheCheapOnes) {
  for (const char* name : {"llama3-70b", "mixtral-8x7b", "deepseek-v3"})
    for (const int tp : {1, 8}) {
      Rig rig(name, "h100:64");
      PriceRequest& r = rig.request;
      r.tp = tp, r.dp = 64 / tp, r.seq = 8192, r.global_batch = 64;
      double sum = 0;
      for (const model::DropRow& row : model::kDropRows) {
        r.drop = {};
        r.drop.*row.is_dropped = true;
        const double one = price_time(r).recompute;
        EXPECT_GT(one, 0) << row.name;
        if (model::kSelective.*row.is_dropped) sum += one;
      }
      r.drop = model::kSelective;
      EXPECT_NEAR(sum, price_time(r).recompute, 1e-9 * sum) << name << tp;
    }
}

// Times of layers are made once for all layouts that share them.
TEST(SomeBlocks, LayerTimesServeEveryPipelineAndSharding) {
  Rig rig("mixtral-8x7b", "h100:64");
  PriceRequest& r = rig.request;
  r.tp = 2, r.dp = 32, r.ep = 8, r.seq = 4096, r.global_batch = 256;
  r.drop = model::kSelective, r.set_recomputed(1);
  const LayerTimes times = layer_times(r);
  for (const int pp : {1, 2, 4, 8})
    for (const int zero : {0, 1, 3})
      for (const int recomputed : {1, 3, 32}) {
        r.pp = pp, r.dp = 32 / pp, r.zero = zero, r.recomputed = recomputed;
        EXPECT_EQ(price_time(r, times).total(), price_time(r).total()) << pp << " " << zero;
      }
}

}  // namespace
}  // namespace lockstep::cost
