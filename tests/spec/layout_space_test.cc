#include "lockstep/spec/layout_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "lockstep/base/check.h"
#include "lockstep/model/catalog.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/shrink.h"

namespace lockstep::spec {
namespace {

// Two key-value heads, of which four tensor ranks hold copies.
model::ModelConfig small() { return shrink(model::find("llama3-8b")->config); }
constexpr Batch kBatch = {.seq = 32, .global_batch = 16, .microbatch = 1};

struct Order {
  std::string name;
  int chunks = 1;
};

// Schedules that differ on so many coordinates and microbatches.
std::vector<Order> orders(std::int64_t pp, std::int64_t m) {
  std::set<std::string> seen;
  std::vector<Order> different;
  for (const std::string& name : schedule_names())
    for (const int chunks : {1, 2, 3}) {
      const auto made =
          pipeline::find(name)->build({static_cast<int>(pp), chunks, static_cast<int>(m)});
      const char* placement =
          made.ok() && made->placement() == pipeline::Placement::kV ? "V " : "loop ";
      if (pp == 1 && chunks > 1) continue;
      if (made.ok() && seen.insert(join_parts(placement, chunks, to_text(*made))).second)
        different.push_back({name, chunks});
    }
  return different;
}

bool is_rare(const Layout& layout) {
  return layout.schedule == "v-min" || layout.schedule == "dualpipe-v";
}

Recompute every_second(std::int64_t stages) {
  Recompute made{model::kSelective};
  made.drop.block = true;
  for (std::int64_t i = 0; i < stages; ++i) made.blocks.push_back(i % 2 == 0 ? 1 : 0);
  return made;
}

// Plain loops over everything that could be meant, asked one by one.
std::set<std::string> by_brute_force(std::int64_t ranks, const Batch& batch) {
  std::set<std::string> names;
  const auto add = [&](const mesh::Degrees& degrees, bool sp, model::CpMethod context) {
    const std::int64_t pp = degrees.pp, dp = degrees.dp;
    if (degrees.tp * degrees.cp * pp * dp != ranks) return;
    for (std::int64_t shard = 1; shard <= dp; ++shard)
      for (int zero = 0; zero <= 3; ++zero)
        for (const std::int64_t m : {1, 2, 4})
          for (const Order& order : orders(pp, m))
            for (const Period reduce : {Period::kStep, Period::kMicrobatch})
              for (const Recompute& recompute : {Recompute{},
                                                 {model::kSelective},
                                                 {model::kWholeBlock},
                                                 every_second(pp * order.chunks)}) {
                if (batch.global_batch % (dp * m) != 0) continue;
                if (m == 1 && reduce == Period::kMicrobatch) continue;
                Layout layout{.degrees = degrees,
                              .context = context,
                              .sp = sp,
                              .zero = zero,
                              .schedule = order.name,
                              .chunks = order.chunks};
                if (is_rare(layout)) continue;
                if (shard < dp) layout.degrees.dp_shard = shard;
                layout.reduce = reduce, layout.recompute = recompute, layout.microbatches = m;
                if (legal(small(), layout, cut(batch, layout), DType::kF32).empty())
                  names.insert(to_text(layout));
              }
  };
  for (std::int64_t tp = 1; tp <= ranks; ++tp)
    for (std::int64_t cp = 1; cp <= ranks; ++cp)
      for (std::int64_t pp = 1; pp <= ranks; ++pp)
        for (std::int64_t dp = 1; dp <= ranks; ++dp)
          for (const bool sp : {true, false})
            for (const model::CpMethod context : model::kCpMethods)
              if ((sp || tp > 1) && (cp > 1 || context == model::kCpMethods[0]))
                add({.tp = tp, .cp = cp, .pp = pp, .dp = dp}, sp, context);
  return names;
}

TEST(Layouts, AreAllLegalOnesOnceEach) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 6, 8}) {
    const std::vector<Layout> all = layouts(small(), ranks, kBatch);
    std::set<std::string> names;
    for (const Layout& layout : all) {
      EXPECT_TRUE(names.insert(to_text(layout)).second) << to_text(layout) << " twice";
      EXPECT_EQ(*parse_layout(to_text(layout)), layout);
      const auto mesh = mesh::Mesh::create(layout.degrees, layout.order);
      ASSERT_TRUE(mesh.ok()) << to_text(layout);
      EXPECT_EQ(mesh->world(), ranks);
    }
    // Of two schedules one layout each, if any.
    EXPECT_LE(std::ranges::count(all, "v-min", &Layout::schedule), 1);
    EXPECT_LE(std::ranges::count(all, "dualpipe-v", &Layout::schedule), 1);
    for (const Layout& layout : all)
      if (is_rare(layout)) names.erase(to_text(layout));
    EXPECT_EQ(names, by_brute_force(ranks, kBatch)) << ranks << " ranks";
  }
}

// Of a mixture every way to share experts, found by asking for each degree.
TEST(Layouts, OfAMixtureShareExpertsInEveryLegalWay) {
  const model::ModelConfig mixture = shrink(model::find("mixtral-8x7b")->config);
  using Key =
      std::tuple<std::int64_t, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  for (const std::int64_t ranks : {2, 4, 6, 8}) {
    std::set<Key> found, legal_ones;
    const auto key = [](const Layout& l) {
      const mesh::Degrees& d = l.degrees;
      return Key(d.tp, l.sp, d.cp, d.dp, d.ep, d.etp);
    };
    for (const Layout& layout : layouts(mixture, ranks, kBatch)) found.insert(key(layout));
    const auto ask = [&](const mesh::Degrees& degrees) {
      for (const bool sp : {true, false}) {
        const Layout asked = {.degrees = degrees, .sp = sp, .zero = 0, .microbatches = 1};
        if ((sp || degrees.tp > 1) &&
            legal(mixture, asked, cut(kBatch, asked), DType::kF32).empty())
          legal_ones.insert(key(asked));
      }
    };
    for (std::int64_t tp = 1; tp <= ranks; ++tp)
      for (std::int64_t cp = 1; cp <= ranks / tp; ++cp)
        for (std::int64_t dp = 1; dp <= ranks / tp / cp; ++dp)
          for (std::int64_t ep = 1; ep <= ranks; ++ep)
            for (std::int64_t etp = 1; etp <= ranks; ++etp)
              if (ranks % (tp * cp * dp) == 0 && kBatch.global_batch % dp == 0)
                ask({.tp = tp,
                     .cp = cp,
                     .pp = ranks / (tp * cp * dp),
                     .dp = dp,
                     .ep = ep,
                     .etp = etp});
    EXPECT_EQ(found, legal_ones) << ranks << " ranks";
    EXPECT_TRUE(
        std::ranges::any_of(found, [](const Key& k) { return std::get<5>(k) < std::get<0>(k); }));
  }
}

TEST(Layouts, ComeInTheDocumentedOrder) {
  const std::vector<Layout> all = layouts(small(), 4, kBatch);
  EXPECT_EQ(to_text(all.front()), "dp4 zero0 m1");
  EXPECT_EQ(to_text(all[1]), "dp4 zero0 m1 recompute=selective");
  EXPECT_EQ(to_text(all[3]), "dp4 zero0 m1 recompute=selective+full:1");
  EXPECT_EQ(to_text(all[4]), "dp4 zero0 zb-h1 m1");
  EXPECT_EQ(to_text(all.back()), "tp4 dp1 nosp zero3 zb-h1 m4 recompute=selective+full:1");
  const auto key = [](const Layout& l) {
    return std::tuple(l.degrees.tp, !l.sp, l.degrees.cp, l.context, l.degrees.pp,
                      -l.degrees.dp_shard.value_or(l.degrees.dp), l.zero, *l.microbatches,
                      std::ranges::find(schedule_names(), l.schedule), l.chunks, l.reduce,
                      to_text(l.recompute) != "none");
  };
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, key));
}

TEST(Layouts, OfABatchThatNothingCutsAreNone) {
  EXPECT_TRUE(layouts(small(), 2, {.seq = 32, .global_batch = 3}).size() > 0);  // pp2 dp1
  EXPECT_TRUE(layouts(small(), 5, {.seq = 32, .global_batch = 3}).empty());     // 5 > 4 layers
}

using Combination = std::vector<std::pair<std::string_view, std::string>>;

std::set<Combination> combinations(std::span<const Layout> all, int strength) {
  std::set<Combination> found;
  const std::span<const Factor> used = factors(all);
  const unsigned count = static_cast<unsigned>(used.size());
  for (const Layout& layout : all)
    for (unsigned bits = 0; bits < 1u << count; ++bits) {
      if (__builtin_popcount(bits) != strength) continue;
      Combination one;
      for (unsigned f = 0; f < count; ++f)
        if ((bits >> f & 1) != 0) one.emplace_back(used[f].name, used[f].value(layout));
      found.insert(one);
    }
  return found;
}

// Choices of values that occur, one by one.
std::int64_t count_infeasible(std::span<const Layout> all, int strength) {
  std::vector<std::set<std::string>> values;
  for (const Factor& factor : factors(all)) {
    values.emplace_back();
    for (const Layout& layout : all) values.back().insert(factor.value(layout));
  }
  const std::span<const Factor> used = factors(all);
  const std::set<Combination> found = combinations(all, strength);
  std::int64_t missing = 0;
  const std::function<void(Combination, std::size_t)> choose = [&](Combination so_far,
                                                                   std::size_t from) {
    if (std::ssize(so_far) == strength) {
      missing += found.contains(so_far) ? 0 : 1;
      return;
    }
    for (std::size_t f = from; f < values.size(); ++f)
      for (const std::string& value : values[f]) {
        Combination more = so_far;
        more.emplace_back(used[f].name, value);
        choose(std::move(more), f + 1);
      }
  };
  choose({}, 0);
  return missing;
}

TEST(CoveringArrayLong, MeetsEveryCombinationThatExists) {
  const std::pair<int, int> cases[] = {{1, 2}, {1, 3}, {4, 1}, {4, 2}, {4, 3}, {8, 2}};
  for (const auto& [ranks, strength] : cases) {
    const std::vector<Layout> all = layouts(small(), ranks, kBatch);
    const CoveringArray array = covering_array(all, strength);
    const std::vector<Layout>& some = array.layouts;
    const std::set<Combination> wanted = combinations(all, strength);
    EXPECT_EQ(combinations(some, strength), wanted) << ranks;
    EXPECT_EQ(array.combinations, std::ssize(wanted));
    if (all.size() < 1000) {
      EXPECT_EQ(array.infeasible, count_infeasible(all, strength));
    }
    std::set<std::string> names;
    for (const Layout& layout : some) {
      EXPECT_TRUE(names.insert(to_text(layout)).second);
      EXPECT_NE(std::ranges::find(all, layout), all.end());
    }
    EXPECT_EQ(some, covering_array(all, strength).layouts);
    EXPECT_LE(some.size() * (strength == 3 ? 2 : 4), all.size())
        << ranks << " ranks, strength " << strength;
  }
}

// Whoever has the most new combinations is next, the earlier of equals: by looking at all of them.
TEST(CoveringArray, IsGreedy) {
  std::vector<Layout> all = layouts(small(), 2, kBatch);
  ASSERT_GT(all.size(), 100U);
  all.resize(100);
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  const CoveringArray array = covering_array(
      all, 2, [&](std::int64_t covered, std::int64_t whole) { told.emplace_back(covered, whole); });
  std::vector<std::set<std::string>> within;
  for (const Layout& layout : all) {
    std::set<std::string>& own = within.emplace_back();
    for (const Factor& one : factors(all))
      for (const Factor& other : factors(all))
        if (one.name < other.name)
          own.insert(join_parts(one.name, one.value(layout), other.name, other.value(layout)));
  }
  std::set<std::string> covered;
  const auto gain = [&](const std::set<std::string>& own) {
    return std::ranges::count_if(own, [&](const std::string& c) { return !covered.contains(c); });
  };
  ASSERT_EQ(told.size(), array.layouts.size());
  for (std::size_t i = 0; i < array.layouts.size(); ++i) {
    const auto best = std::ranges::max_element(within, {}, gain) - within.begin();
    EXPECT_EQ(array.layouts[i], all[static_cast<std::size_t>(best)]) << i;
    covered.insert(within[static_cast<std::size_t>(best)].begin(),
                   within[static_cast<std::size_t>(best)].end());
    EXPECT_EQ(told[i], std::pair(std::int64_t(std::ssize(covered)), array.combinations));
  }
  EXPECT_EQ(std::ssize(covered), array.combinations);
}

TEST(CoveringArray, OfNothingIsNothing) { EXPECT_TRUE(covering_array({}, 2).layouts.empty()); }

TEST(Factors, ListTheirValues) {
  const std::vector<Layout> all = layouts(small(), 4, kBatch);
  std::vector<std::string> shown;
  for (const Factor& factor : factors(all)) {
    std::string line = std::string(factor.name) + ":";
    std::set<std::string> seen;
    for (const Layout& layout : all)
      if (seen.insert(factor.value(layout)).second) line += " " + factor.value(layout);
    shown.push_back(line);
  }
  EXPECT_EQ(
      shown,
      (std::vector<std::string>{
          "tp: 1 2 4", "sp: - yes no", "cp: 1 2 ring 2 gather 2 ulysses 4 ring 4 gather 4 ulysses",
          "pp: 1 2 4", "dp_replicate: 1 2 4", "dp_shard: 4 2 1", "zero: 0 1 2 3", "m: 1 2 4",
          "schedule: 1f1b zb-h1 gpipe interleaved interleaved-zb "
          "zbv looped-bfs v-half eager-1f1b v-min dualpipe-v",
          "vpp: 1 2", "reduce: step microbatch", "recompute: none selective full some blocks"}));
}

}  // namespace
}  // namespace lockstep::spec
