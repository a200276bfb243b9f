#include "lockstep/mesh/mesh.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/mesh/random_mesh.h"

namespace lockstep::mesh {
namespace {

TEST(Mesh, AgreesWithAListOfEveryRank) {
  Dice dice(1);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = random_mesh(dice, 300);
    const Degrees d = degrees_of(mesh);
    SCOPED_TRACE("round " + std::to_string(round));
    const auto listed =
        listed_coords(d, to_text(mesh.order()), mesh.degree(Axis::kExpertDataReplicate));
    ASSERT_EQ(mesh.world(), static_cast<std::int64_t>(listed.size()));
    for (std::int32_t r = 0; r < mesh.world(); ++r) {
      ASSERT_EQ(coords_of(mesh, Rank{r}), listed[static_cast<std::size_t>(r)]) << "rank " << r;
      ASSERT_EQ(mesh.rank(listed[static_cast<std::size_t>(r)]), Rank{r});
    }
  }
}

TEST(Mesh, DefaultOrderPutsTensorNeighboursSideBySide) {
  const Mesh mesh = *Mesh::create({.tp = 2, .cp = 3, .pp = 4, .dp = 6, .dp_shard = 2});
  Coords c;
  c[Axis::kTensor] = Coord{1};
  c[Axis::kContext] = Coord{2};
  c[Axis::kPipeline] = Coord{3};
  c[Axis::kDataShard] = Coord{1};
  c[Axis::kDataReplicate] = Coord{2};
  EXPECT_EQ(mesh.rank(c).value, 1 + 2 * (2 + 3 * (3 + 4 * (1 + 2 * 2))));
  EXPECT_EQ(mesh.coord(Rank{143}, kDp), Coord{5});
  EXPECT_EQ(mesh.degree(kDp), 6);
  EXPECT_EQ(mesh.degree(Axis::kDataReplicate), 3);
  EXPECT_EQ(mesh.degree(kWorld), 144);
}

TEST(Mesh, ExpertReplicasStartWhereDataReplicasStart) {
  Dice dice(2);
  for (int round = 0; round < 500; ++round) {
    const Mesh mesh = random_mesh(dice, 1024);
    const Degrees d = degrees_of(mesh);
    const std::int32_t edp = mesh.degree(kExpertData);
    ASSERT_EQ(edp * d.ep * d.etp, d.tp * d.cp * d.dp);
    // The most equal replicas whose borders are borders of data replicas, by trial.
    const std::int64_t ranks = d.tp * d.cp * d.dp;
    std::int64_t best = 1;
    for (std::int64_t n = 1; n <= edp; ++n)
      if (edp % n == 0 && ranks / n % (d.tp * d.cp * *d.dp_shard) == 0) best = n;
    ASSERT_EQ(mesh.degree(Axis::kExpertDataReplicate), best);
  }
}

TEST(Mesh, DegreesReadBack) {
  Dice dice(3);
  for (int round = 0; round < 100; ++round) {
    const Degrees d = random_degrees(dice, 1024);
    EXPECT_EQ(degrees_of(*Mesh::create(d)), d);
  }
  EXPECT_EQ(Mesh::create({.dp = 6})->degree(Axis::kDataShard), 6) << "flat unless said otherwise";
  EXPECT_EQ(Mesh(), *Mesh::create({}));
}

TEST(Mesh, HoldsTheLargestWorldAndRefusesTheNext) {
  const std::int64_t max = std::numeric_limits<std::int32_t>::max();
  const Mesh mesh = *Mesh::create({.dp = max});
  EXPECT_EQ(mesh.world(), max);
  const Rank last{static_cast<std::int32_t>(max - 1)};
  EXPECT_EQ(mesh.rank(coords_of(mesh, last)), last);
  EXPECT_EQ(mesh.group(Rank{5}, kDp).rank_at(last.value), last);
  for (const Degrees& d : {Degrees{.dp = max + 1}, Degrees{.tp = 1 << 16, .dp = 1 << 15},
                           Degrees{.tp = max * max, .cp = max * max, .dp = max * max}}) {
    const auto refused = Mesh::create(d);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kBadDegree);
    EXPECT_NE(refused.error().message.find("is more than 2147483647 ranks"), std::string::npos);
  }
}

TEST(Mesh, RefusesWithTheNearestLegalValues) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  const struct {
    Degrees degrees;
    Code code;
    const char* message;
    const char* help;
  } rows[] = {
      {{.tp = 0}, Code::kBadDegree, "tp = 0 is less than 1", "set tp = 1 to leave the axis out"},
      {{.pp = -3}, Code::kBadDegree, "pp = -3 is less than 1", "set pp = 1 to leave the axis out"},
      {{.ep = 0}, Code::kBadDegree, "ep = 0 is less than 1", "set ep = 1 to leave the axis out"},
      {{.dp = 4, .dp_shard = 0},
       Code::kBadDegree,
       "dp_shard = 0 is less than 1",
       "leave dp_shard out to shard over all of dp"},
      {{.dp = 12, .dp_shard = 5},
       Code::kDoesNotDivide,
       "dp_shard = 5 does not divide dp = 12",
       "the nearest values that do: 4 or 6"},
      {{.dp = 4, .dp_shard = 8},
       Code::kDoesNotDivide,
       "dp_shard = 8 does not divide dp = 4",
       "the nearest values that do: 4"},
      {{.tp = 2, .pp = 3, .dp = 4, .ep = 3, .etp = 2},
       Code::kDoesNotDivide,
       "ep x etp = 3 x 2 does not divide tp x cp x dp = 8",
       "with etp = 2, the nearest values of ep that fit: 2 or 4"},
      {{.tp = 2, .dp = 4, .ep = 1, .etp = 3},
       Code::kDoesNotDivide,
       "ep x etp = 1 x 3 does not divide tp x cp x dp = 8",
       "the nearest values of etp that divide 8: 2 or 4"},
      {{.dp = 4, .ep = max, .etp = 2},
       Code::kDoesNotDivide,
       "ep x etp = 9223372036854775807 x 2 does not divide tp x cp x dp = 4",
       "with etp = 2, the nearest values of ep that fit: 2"},
  };
  for (const auto& row : rows) {
    const auto refused = Mesh::create(row.degrees);
    ASSERT_FALSE(refused.ok()) << row.message;
    EXPECT_EQ(refused.error().code, row.code);
    EXPECT_EQ(refused.error().message, row.message);
    EXPECT_EQ(refused.error().help, row.help);
  }
}

TEST(CheckWorld, NamesTheDegreesThatFit) {
  EXPECT_TRUE(check_world({.tp = 2, .pp = 4, .dp = 4}, 32).ok());
  const struct {
    Degrees degrees;
    std::int64_t world;
    const char* message;
    const char* help;
  } rows[] = {
      {{.tp = 2, .pp = 4, .dp = 3},
       32,
       "tp x cp x pp x dp = 2 x 1 x 4 x 3 = 24, but the world has 32 ranks",
       "with the other degrees as they are, dp = 4 fits"},
      {{.tp = 2, .pp = 4, .dp = 2},
       32,
       "tp x cp x pp x dp = 2 x 1 x 4 x 2 = 16, but the world has 32 ranks",
       "with the other degrees as they are, tp = 4 or cp = 2 or pp = 8 or dp = 4 fits"},
      {{.tp = 4, .pp = 2, .dp = 2},
       30,
       "tp x cp x pp x dp = 4 x 1 x 2 x 2 = 16, but the world has 30 ranks",
       "the nearest with tp x cp x pp = 8: dp = 3 on 24 ranks or dp = 4 on 32 ranks"},
      {{.tp = 4, .pp = 2, .dp = 2},
       3,
       "tp x cp x pp x dp = 4 x 1 x 2 x 2 = 16, but the world has 3 ranks",
       "the nearest with tp x cp x pp = 8: dp = 1 on 8 ranks"},
      {{.dp = 2},
       0,
       "a world of 0 ranks is not between 1 and 2147483647",
       "tp x cp x pp x dp = 1 x 1 x 1 x 2 needs 2 ranks"},
  };
  for (const auto& row : rows) {
    const auto refused = check_world(row.degrees, row.world);
    ASSERT_FALSE(refused.ok()) << row.message;
    EXPECT_EQ(refused.error().code, Code::kDegreesDoNotMatchWorld);
    EXPECT_EQ(refused.error().message, row.message);
    EXPECT_EQ(refused.error().help, row.help);
  }
  EXPECT_EQ(check_world({.tp = 0}, 8).error().code, Code::kBadDegree);
}

TEST(Mesh, MixedViewsAndForeignRanksAreBugs) {
  const Mesh mesh = *Mesh::create({.tp = 2, .dp = 2, .ep = 2});
  EXPECT_THROW((void)mesh.group(Rank{0}, {Axis::kTensor, Axis::kExpert}), BrokenInvariant);
  EXPECT_THROW((void)mesh.group(Rank{4}, kDp), BrokenInvariant);
  EXPECT_THROW((void)mesh.group(Rank{-1}, kDp), BrokenInvariant);
  EXPECT_THROW((void)coords_of(mesh, Rank{4}), BrokenInvariant);
  Coords outside;
  outside[Axis::kTensor] = Coord{2};
  EXPECT_THROW((void)mesh.rank(outside), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::mesh
