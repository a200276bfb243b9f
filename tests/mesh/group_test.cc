#include "lockstep/mesh/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "tests/mesh/random_mesh.h"

namespace lockstep::mesh {
namespace {

using Ranks = std::vector<Rank>;

Ranks members(const Group& group) { return group.ranks(); }

const std::array<Axis, 5>& view_of(AxisSet axes) {
  return kWorld.covers(axes) ? kDenseView : kExpertView;
}

// Groups by comparing coordinates: same on the other axes of the view, sorted by those of `axes`
// with the earlier axis faster.
std::map<std::vector<std::int32_t>, Ranks> listed_groups(const std::vector<Coords>& coords,
                                                         AxisSet axes) {
  std::map<std::vector<std::int32_t>, std::map<std::vector<std::int32_t>, Rank>> groups;
  for (std::size_t rank = 0; rank < coords.size(); ++rank) {
    std::vector<std::int32_t> shared;
    std::vector<std::int32_t> own;
    for (Axis axis : view_of(axes)) {
      if (axes.has(axis))
        own.insert(own.begin(), coords[rank][axis].value);
      else
        shared.push_back(coords[rank][axis].value);
    }
    groups[shared][own] = Rank{static_cast<std::int32_t>(rank)};
  }
  std::map<std::vector<std::int32_t>, Ranks> listed;
  for (const auto& [shared, group] : groups)
    for (const auto& [own, rank] : group) listed[shared].push_back(rank);
  return listed;
}

TEST(Group, AgreesWithComparingEveryCoordinate) {
  Dice dice(11);
  for (int round = 0; round < 40; ++round) {
    const Mesh mesh = random_mesh(dice, 120);
    const auto coords = listed_coords(degrees_of(mesh), to_text(mesh.order()),
                                      mesh.degree(Axis::kExpertDataReplicate));
    for (AxisSet axes : all_axis_sets()) {
      SCOPED_TRACE("round " + std::to_string(round) + " " + to_text(axes));
      for (const auto& [shared, ranks] : listed_groups(coords, axes)) {
        for (Rank rank : ranks) {
          const Group group = mesh.group(rank, axes);
          ASSERT_EQ(members(group), ranks);
          ASSERT_EQ(group, mesh.group(ranks.front(), axes));
          ASSERT_EQ(group.axes(), axes);
        }
      }
    }
  }
}

TEST(Group, MemberNumbersInvertRanksAndOthersAreNoMembers) {
  Dice dice(12);
  for (int round = 0; round < 60; ++round) {
    const Mesh mesh = random_mesh(dice, 100);
    for (AxisSet axes : all_axis_sets()) {
      const Group group =
          mesh.group(Rank{static_cast<std::int32_t>(dice.between(0, mesh.world() - 1))}, axes);
      ASSERT_EQ(group.size(), mesh.degree(axes));
      std::int32_t num_members = 0;
      for (std::int32_t i = 0; i < group.size(); ++i)
        ASSERT_EQ(group.index_of(group.rank_at(i)), i);
      for (std::int32_t r = 0; r < mesh.world(); ++r) num_members += group.contains(Rank{r});
      ASSERT_EQ(num_members, group.size());
      ASSERT_FALSE(group.contains(Rank{-1}));
      ASSERT_FALSE(group.contains(Rank{mesh.world()}));
    }
  }
}

TEST(Group, GroupsOfOneAxisSetPartitionTheWorld) {
  Dice dice(13);
  for (int round = 0; round < 60; ++round) {
    const Mesh mesh = random_mesh(dice, 300);
    const AxisSet axes = dice.pick(all_axis_sets());
    std::vector<int> times_seen(static_cast<std::size_t>(mesh.world()), 0);
    for (std::int32_t r = 0; r < mesh.world(); ++r) {
      const Group group = mesh.group(Rank{r}, axes);
      if (group.rank_at(0) != Rank{r}) continue;
      for (Rank member : group.ranks()) ++times_seen[static_cast<std::size_t>(member.value)];
    }
    ASSERT_EQ(std::ranges::count(times_seen, 1), mesh.world()) << to_text(axes);
  }
}

TEST(Group, BothViewsDescribeTheSameRanks) {
  Dice dice(14);
  for (int round = 0; round < 100; ++round) {
    const Mesh mesh = random_mesh(dice, 300);
    const Rank rank{static_cast<std::int32_t>(dice.between(0, mesh.world() - 1))};
    // One pipeline coordinate, in the same order, whichever way it is read.
    EXPECT_EQ(members(mesh.group(rank, kData | Axis::kTensor)),
              members(mesh.group(rank, kExpertData | Axis::kExpertTensor | Axis::kExpert)));
    if (mesh.degree(Axis::kExpertTensor) == mesh.degree(Axis::kTensor)) {
      EXPECT_EQ(members(mesh.group(rank, Axis::kTensor)),
                members(mesh.group(rank, Axis::kExpertTensor)));
    }
  }
}

// Expects every `part` group to be an aligned block of consecutive members of its `whole` group.
void expect_aligned_blocks(const Mesh& mesh, AxisSet part, AxisSet whole) {
  for (std::int32_t r = 0; r < mesh.world(); ++r) {
    const Group block = mesh.group(Rank{r}, part);
    const Group all = mesh.group(Rank{r}, whole);
    const std::int32_t first = all.index_of(block.rank_at(0)).value();
    ASSERT_EQ(first % block.size(), 0);
    for (std::int32_t i = 0; i < block.size(); ++i)
      ASSERT_EQ(all.rank_at(first + i), block.rank_at(i)) << to_text(part);
  }
}

TEST(Group, ShardGroupsAreAlignedBlocksOfTheDataGroupInEveryOrder) {
  Dice dice(15);
  for (int round = 0; round < 100; ++round) {
    const Mesh mesh = random_mesh(dice, 300);
    SCOPED_TRACE(to_text(mesh.order()));
    expect_aligned_blocks(mesh, Axis::kDataShard, kDp);
    expect_aligned_blocks(mesh, kDenseShard, kData);
    expect_aligned_blocks(mesh, Axis::kExpertDataShard, kExpertData);
  }
}

TEST(Group, MembersAscendInRankUnderTheDefaultOrder) {
  Dice dice(16);
  for (int round = 0; round < 50; ++round) {
    const Mesh mesh = *Mesh::create(random_degrees(dice, 300));
    for (AxisSet axes : all_axis_sets())
      EXPECT_TRUE(!kWorld.covers(axes) || std::ranges::is_sorted(members(mesh.group({}, axes))));
  }
}

TEST(Group, OrderMovesRanksButNotCoordinates) {
  const Degrees degrees = {.tp = 2, .cp = 2, .pp = 3, .dp = 4, .dp_shard = 2, .ep = 4};
  const Mesh plain = *Mesh::create(degrees);
  for (const std::string& text : all_order_texts()) {
    const Mesh mesh = *Mesh::create(degrees, *Order::parse(text));
    for (AxisSet axes : all_axis_sets()) {
      for (std::int32_t r = 0; r < mesh.world(); ++r) {
        const Coords coords = coords_of(plain, Rank{r});
        const Group before = plain.group(Rank{r}, axes);
        const Group after = mesh.group(mesh.rank(coords), axes);
        ASSERT_EQ(before.name(), after.name());
        for (std::int32_t i = 0; i < before.size(); ++i)
          ASSERT_EQ(coords_of(plain, before.rank_at(i)), coords_of(mesh, after.rank_at(i)));
      }
    }
  }
}

TEST(Group, NamesTellWhatMembersShare) {
  const Mesh mesh = *Mesh::create({.tp = 2, .pp = 2, .dp = 4, .dp_shard = 2, .ep = 4});
  const Rank rank{1 + 2 * (0 + 2 * 3)};  // tp 1, pp 0, dp 3
  EXPECT_EQ(mesh.group(rank, kDp).name(), "dp@tp1.pp0");
  EXPECT_EQ(mesh.group(rank, kData).name(), "data@tp1.pp0");
  EXPECT_EQ(mesh.group(rank, Axis::kTensor).name(), "tp@pp0.dp_shard1.dp_replicate1");
  EXPECT_EQ(mesh.group(rank, Axis::kExpert).name(), "ep@pp0.edp_replicate1");
  EXPECT_EQ(mesh.group(rank, kWorld).name(), "world");
  EXPECT_EQ(Group().name(), "self");
}

TEST(Group, NamesAreEqualExactlyForEqualGroups) {
  Dice dice(17);
  for (int round = 0; round < 20; ++round) {
    const Mesh mesh = random_mesh(dice, 64);
    std::map<std::string, Group> by_name;
    std::size_t num_groups = 0;
    for (AxisSet axes : all_axis_sets()) {
      std::set<Rank> firsts;
      for (std::int32_t r = 0; r < mesh.world(); ++r) {
        const Group group = mesh.group(Rank{r}, axes);
        firsts.insert(group.rank_at(0));
        const auto [row, is_new] = by_name.emplace(group.name(), group);
        ASSERT_EQ(row->second, group) << group.name();
      }
      num_groups += firsts.size();
    }
    ASSERT_EQ(by_name.size(), num_groups);
  }
}

TEST(Group, MemberBeyondTheEndIsABug) {
  const Mesh mesh = *Mesh::create({.dp = 4});
  EXPECT_THROW((void)mesh.group(Rank{0}, kDp).rank_at(4), BrokenInvariant);
  EXPECT_THROW((void)mesh.group(Rank{0}, kDp).rank_at(-1), BrokenInvariant);
}

// The limit is far above what it takes, and far below any walk over the ranks.
TEST(Group, ComesWithinTenMicrosecondsOnAMillionRanks) {
  const Mesh mesh =
      *Mesh::create({.tp = 8, .cp = 4, .pp = 16, .dp = 2048, .dp_shard = 64, .ep = 64, .etp = 2});
  ASSERT_EQ(mesh.world(), 1 << 20);
  const std::vector<AxisSet> own = {Axis::kTensor,
                                    Axis::kContext,
                                    Axis::kPipeline,
                                    Axis::kDataShard,
                                    Axis::kDataReplicate,
                                    kDp,
                                    kData,
                                    kDenseShard,
                                    kData | Axis::kTensor,
                                    Axis::kExpert,
                                    Axis::kExpertTensor,
                                    kExpertData,
                                    kWorld};
  using Clock = std::chrono::steady_clock;
  for (AxisSet axes : own) {
    std::vector<double> ns;
    for (std::int32_t repeat = 0; repeat < 1001; ++repeat) {
      const Rank rank{static_cast<std::int32_t>(repeat * 1046LL)};
      const auto start = Clock::now();
      const Group group = mesh.group(rank, axes);
      const bool found = group.rank_at(group.index_of(rank).value()) == rank;
      ns.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
      ASSERT_TRUE(found);
    }
    std::ranges::nth_element(ns, ns.begin() + 500);
    RecordProperty("ns_" + to_text(axes), static_cast<int>(ns[500]));
    EXPECT_LE(ns[500], 10'000) << to_text(axes);
  }
}

}  // namespace
}  // namespace lockstep::mesh
