#include "lockstep/planner/lattice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/cost/analytic/stage_split.h"
#include "lockstep/sim/stage_sim.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

// Whatever is planned has the bubble and the memory that a simulation of its schedule says, to the
// bit: backward passes of 4/3 to 4 forward passes, as prices halve them.
TEST(Lattice, PricesOfItsTimetablesAreThoseOfTheSimulator) {
  int cases = 0;
  const Asked asked("llama3-405b", "h100:16", 8192, 64);  // 126 layers
  const Lattice lattice(asked.question);
  for (const int pp : {2, 3, 4, 5, 6, 7, 8, 12, 16})
    for (const Timetable& table : lattice.timetables(pp))
      for (const int m : {1, 2, 6, 8, 12, 16, 24, 32, 48})
        for (const double backward : {4.0 / 3, 1.5, 2.0, 2.5, 3.0, 4.0}) {
          if (!lattice.fits(table, pp, m)) continue;
          cost::PriceRequest r = Lattice::blank(asked.question);
          r.pp = pp, r.schedule = table.schedule, r.chunks = table.chunks;
          r.global_batch = m;
          const double f = 720 * 720.0, b = f * backward;
          const pipeline::Shape shape{pp, table.chunks, m};
          const auto built = table.schedule->build(shape);
          ASSERT_TRUE(built.ok());
          const sim::StageTimes times =
              sim::simulate_stages(*built, sim::even_costs(shape, {f}, {b / 2}, {b / 2}));
          const std::string_view name = table.schedule->name;
          EXPECT_NEAR(cost::bubble_seconds(r, f, b) / f, times.bubble().value / f, 1e-9)
              << name << " pp " << pp << " m " << m << " backward " << backward;
          for (int rank = 0; rank < shape.coords; ++rank)
            EXPECT_DOUBLE_EQ(cost::in_flight(r, rank) * shape.chunks,
                             times.peak[static_cast<std::size_t>(rank)])
                << name << " pp " << pp << " m " << m << " rank " << rank;
          ++cases;
        }
  EXPECT_GT(cases, 2000);
}

// With chunks at most the ends have a layer less, unless the core is given.
TEST(Lattice, StagesOfChunksAreEvenButForTheEnds) {
  Asked asked("llama3-8b", "h100:16", 8192, 64);
  const auto has_two_chunks = [&](int layers) {
    asked.shape.layers = layers;
    return std::ranges::count(Lattice(asked.question).timetables(4), 2, &Timetable::chunks) > 0;
  };
  for (const int layers : {8, 30, 31, 32}) EXPECT_TRUE(has_two_chunks(layers)) << layers;
  for (const int layers : {7, 28, 29, 33}) EXPECT_FALSE(has_two_chunks(layers)) << layers;
  asked.question.given.core = {1, 1, 1, 1};
  EXPECT_TRUE(has_two_chunks(29));
  EXPECT_FALSE(has_two_chunks(7));
}

}  // namespace
}  // namespace lockstep::planner
