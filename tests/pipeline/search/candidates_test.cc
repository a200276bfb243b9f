#include "lockstep/pipeline/search/candidates.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/pipeline/catalog.h"

namespace lockstep::pipeline {
namespace {

using pipeline::Placement;
using pipeline::Schedule;
using pipeline::Shape;

std::map<std::string, Schedule> candidates_of(const Shape& shape, Placement placement) {
  std::map<std::string, Schedule> found;
  const StageProblem problem = {shape, placement, sim::even_costs(shape, {60}, {72}, {48}, {6}),
                                shape.coords * shape.chunks};
  for_each_candidate(problem, [&](const std::string& name, const Schedule& made) {
    EXPECT_EQ(made.shape(), shape) << name;
    EXPECT_EQ(made.placement(), placement) << name;
    EXPECT_TRUE(found.emplace(name, made).second) << name << " is there twice";
  });
  return found;
}

TEST(Candidates, AreTheWholeCatalogueAndMore) {
  for (const Shape& shape :
       {Shape{4, 1, 8}, {4, 2, 9}, {8, 2, 32}, {3, 3, 7}, {1, 1, 1}, {5, 2, 3}}) {
    const auto loop = candidates_of(shape, Placement::kLoop);
    const auto v = candidates_of(shape, Placement::kV);
    std::size_t named = 0;
    for (const pipeline::CatalogRow& row : pipeline::catalog()) {
      const auto made = row.build(shape);
      if (!made.ok()) continue;
      ++named;
      const auto& among = made->placement() == Placement::kLoop ? loop : v;
      ASSERT_TRUE(among.contains(std::string(row.name))) << row.name;
      EXPECT_EQ(among.at(std::string(row.name)), *made);
    }
    EXPECT_GE(loop.size() + v.size(), named + 16);
  }
}

TEST(Candidates, HaveGroupsOfManySizes) {
  const auto found = candidates_of({4, 2, 24}, Placement::kLoop);
  for (const char* name : {"interleaved", "interleaved-zb"}) {
    const auto grouped = pipeline::find(name)->build_grouped;
    for (const int size : {5, 8, 12, 20, 24}) {
      const auto made = grouped({4, 2, 24}, size);
      const std::string title = std::string(name) + " in groups of " + std::to_string(size);
      EXPECT_EQ(found.contains(title), made.ok()) << title;
      if (made.ok()) {
        EXPECT_EQ(found.at(title), *made);
      }
    }
  }
}

TEST(Candidates, WarmUpBetween1f1bAndItsEagerKin) {
  const Shape shape = {4, 1, 12};
  const auto found = candidates_of(shape, Placement::kLoop);
  const auto peaks = [&](const std::string& name) {
    return sim::simulate_stages(found.at(name), sim::even_costs(shape, {1}, {1}, {1})).peak;
  };
  EXPECT_EQ(peaks("1f1b"), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(peaks("1f1b with 1 more to warm up"), (std::vector{5, 4, 3, 1}));
  EXPECT_EQ(peaks("1f1b with 2 more to warm up"), (std::vector{6, 5, 3, 1}));
  EXPECT_EQ(peaks("eager-1f1b"), (std::vector{7, 5, 3, 1}));
}

}  // namespace
}  // namespace lockstep::pipeline
