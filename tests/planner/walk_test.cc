#include "lockstep/planner/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cost/analytic/layer_time.h"
#include "lockstep/model/catalog.h"
#include "tests/planner/questions.h"

namespace lockstep::planner {
namespace {

using cost::Placement;
using cost::PriceRequest;
using model::CpMethod;

struct Case {
  cluster::Cluster cluster;
  cost::ModelShape shape;
  Question question;
};

// Degrees written out here again, from the rules in lattice.h: every number up to the limit is
// tried, nothing is skipped, nothing is remembered.
class BruteForce {
 public:
  explicit BruteForce(const Question& q) : q_(q) {}

  std::vector<Priced> all;
  std::int64_t points = 0;

  void run() {
    const int n = static_cast<int>(q_.devices);
    for (int tp = 1; tp <= n; ++tp)
      for (int cp = 1; cp <= n; ++cp)
        for (int pp = 1; pp <= n; ++pp)
          if (n % (tp * cp * pp) == 0) dense(tp, cp, pp, n / (tp * cp * pp));
  }

 private:
  static bool cuts(int part, double whole) { return static_cast<int>(whole) % part == 0; }

  void dense(int tp, int cp, int pp, int dp) {
    const cost::ModelShape& s = *q_.shape;
    if (tp > q_.cluster->tiers[0].size || !cuts(tp, s.heads)) return;
    if (!cuts(tp, s.kv_heads) && !cuts(static_cast<int>(s.kv_heads), tp)) return;
    if ((s.experts == 0 || s.dense_layers > 0 || s.moe_every > 1) && !cuts(tp, s.ffn)) return;
    if (!cuts(tp, s.shared_ffn) || q_.seq % tp != 0 || q_.global_batch % dp != 0) return;
    if (cp > 1 && (q_.seq % (2 * cp * tp) != 0 || q_.seq / cp < 512)) return;
    if (pp > s.layers) return;
    way_ = CpMethod::kRing;
    experts(tp, cp, pp, dp);
    if (cp == 1) return;
    way_ = CpMethod::kGather;
    experts(tp, cp, pp, dp);
    way_ = CpMethod::kUlysses;
    if (cuts(tp * cp, s.heads)) experts(tp, cp, pp, dp);
  }

  void experts(int tp, int cp, int pp, int dp) {
    const cost::ModelShape& s = *q_.shape;
    if (s.experts == 0) return batch(tp, cp, pp, dp, 1, 1);
    for (int ep = 1; ep <= s.experts; ++ep)
      for (const int etp : {1, tp}) {
        if (etp > 1 && !cuts(etp, s.expert_ffn)) continue;
        if (cuts(ep, s.experts) && (tp * cp * dp) % (ep * etp) == 0) batch(tp, cp, pp, dp, ep, etp);
        if (tp == 1) break;
      }
  }

  void batch(int tp, int cp, int pp, int dp, int ep, int etp) {
    PriceRequest r;
    r.shape = q_.shape, r.cluster = q_.cluster, r.rates = q_.rates;
    r.seq = static_cast<int>(q_.seq), r.global_batch = q_.global_batch;
    r.tp = tp, r.cp = cp, r.pp = pp, r.dp = dp;
    r.ep = ep, r.etp = etp;
    r.context = way_;
    for (int b = 1; b <= 64; ++b) {
      if (q_.global_batch % (dp * b) != 0) continue;
      r.microbatch = b;
      timetable(r, q_.global_batch / (dp * b));
    }
  }

  void timetable(PriceRequest& r, std::int64_t m) {
    const int pp = r.pp, layers = q_.shape->layers;
    for (const char* name :
         {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "v-half", "v-min", "dualpipe-v"})
      for (int v = 1; v <= 16; ++v) {
        const std::string_view is = name;
        const bool plain = is == "gpipe" || is == "1f1b" || is == "zb-h1";
        const bool is_v = !plain && is != "interleaved";
        if (pp == 1 && is != "1f1b") continue;
        if (plain ? v != 1 : is_v ? v != 2 : v < 2) continue;
        if (v > 1 && (pp * v > layers || (pp * v - layers % (pp * v)) % (pp * v) > 2)) continue;
        const bool runs = pp == 1 || is == "gpipe" || is == "1f1b" ||
                          (is == "interleaved" && m % pp == 0) || (is == "zb-h1" && m >= pp) ||
                          (is == "zbv" && m > 2 * pp - 2) || (is == "v-half" && 2 * m > pp) ||
                          (is == "v-min" && 3 * m >= 2 * pp + 2) ||
                          (is == "dualpipe-v" && m >= 2 * pp);
        if (!runs) continue;
        r.schedule = &pipeline::row(name), r.chunks = v;
        sharding(r, m);
      }
  }

  void sharding(PriceRequest& r, std::int64_t m) {
    const int data = r.dp * r.cp;
    std::vector<int> groups = {data};
    for (const cluster::Tier& tier : q_.cluster->tiers)
      for (const int stride : {r.tp, r.tp * r.pp}) {
        int best = 1;
        for (int g = 1; g <= r.dp; ++g)
          if (r.dp % g == 0 && g * r.cp * stride <= tier.size) best = g;
        const int group = best * r.cp;
        if (group > 1 && std::ranges::count(groups, group) == 0) groups.push_back(group);
      }
    for (int zero = 0; zero <= 3; ++zero)
      for (const int group : groups) {
        if (data == 1 && zero != 1) continue;
        if ((zero == 0 || zero == 2) && group != data) continue;
        if (zero == 2 && m != 1) continue;
        r.zero = zero, r.dp_shard = group;
        rest(r);
      }
  }

  void rest(PriceRequest& r) {
    for (const model::Drop& keep : {model::kKeepAll, model::kSelective, model::kWholeBlock})
      for (const Placement placement : {Placement::kPipeInside, Placement::kDataInside}) {
        if (placement == Placement::kDataInside && (r.pp == 1 || r.dp == 1)) continue;
        r.placement = placement;
        ++points;
        // Ends may have fewer.
        const int layers = (q_.shape->layers + r.pp - 1) / r.pp + 1;
        for (const model::Drop& others : {model::kKeepAll, model::kSelective})
          for (r.recomputed = 0; r.recomputed < (keep.block ? layers : 1); ++r.recomputed) {
            r.drop = keep;
            if (r.recomputed > 0) r.drop = others, r.drop.block = true;
            all.push_back({r, cost::price(r)});
            all.back().hoped = hoped_seconds(r, all.back().price.time, cost::layer_times(r));
          }
      }
  }

  const Question& q_;
  CpMethod way_ = CpMethod::kRing;
};

// Small models whose states are near the memory of a few devices, so that bounds have work to do.
Case random_case(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<double> from) {
    return from.begin()[random() % from.size()];
  };
  Case made;
  const char* names[] = {"h100:8", "h100:16", "a100:32", "h100:64", "b200:24", "a100:6"};
  auto cluster = cluster::cluster_from_name(names[random() % std::size(names)]);
  if (!cluster.ok()) cluster = cluster::cluster_from_name("h100:16");
  made.cluster = *cluster;
  Question& q = made.question;
  cost::ModelShape& s = made.shape;
  s.layers = int(pick({4, 6, 14, 16, 30, 31})), s.hidden = pick({1024, 4096, 8192});
  s.heads = pick({8, 16, 24}), s.kv_heads = pick({4, 8, s.heads}), s.qk_dim = s.v_dim = 128;
  s.ffn = pick({4096, 11008, 28672}), s.vocab = pick({32000, 128256}), s.tied = random() % 2 == 0;
  if (random() % 3 == 0)
    s.experts = pick({4, 6, 8}), s.top_k = 2, s.expert_ffn = 2048, s.dense_layers = pick({0, 1});
  q.headroom = 0;
  q.devices = made.cluster.count;
  q.seq = std::int64_t(pick({1024, 2048, 8192, 65536}));
  q.global_batch = q.devices * std::int64_t(pick({1, 2, 3, 8})) / (random() % 4 == 0 ? 2 : 1);
  // Fewer sequences than devices: some layers or sequences have to be cut.
  if (random() % 3 == 0) q.global_batch = std::max<std::int64_t>(1, q.devices / 16);
  return made;
}

double bytes_of(const Priced& one) { return cost::device_bytes(one.price.memory); }

// Gives devices the memory that this share of all layouts needs, and leaves only those that fit.
void shrink_memory(cluster::Cluster& cluster, std::vector<Priced>& all, double share) {
  if (all.empty()) return;
  std::ranges::sort(all, {}, bytes_of);
  const auto at = static_cast<std::size_t>(share * static_cast<double>(all.size()));
  cluster.device.memory.value *= bytes_of(all[at]) / cost::capacity_bytes(cluster.device);
  std::erase_if(
      all, [&](const Priced& one) { return bytes_of(one) > cost::capacity_bytes(cluster.device); });
}

void compare(int rounds, unsigned seed) {
  const double shares[] = {0.9, 0.5, 0.2, 0.05, 0.01, 0.001};
  std::mt19937 random(seed);
  int without = 0;
  double priced = 0, points = 0;
  for (int round = 0; round < rounds; ++round) {
    Case made = random_case(random);
    Question& q = made.question;
    q.shape = &made.shape;
    q.cluster = &made.cluster;
    q.rates = &cluster::rates_of(made.cluster.device);
    BruteForce brute(q);
    brute.run();
    shrink_memory(made.cluster, brute.all, shares[round % std::size(shares)]);
    const Walk found = walk(Lattice(q), 5);
    ASSERT_EQ(found.layouts, brute.points) << round;
    without += brute.all.empty() ? 1 : 0;
    priced += double(found.times), points += double(found.layouts);
    std::ranges::sort(brute.all, better);
    // The best of each schedule and set of degrees.
    std::vector<Priced> expected;
    for (const Priced& one : brute.all) {
      const auto same = [&](const Priced& other) {
        return other.request.tp == one.request.tp && other.request.cp == one.request.cp &&
               other.request.pp == one.request.pp && other.request.ep == one.request.ep &&
               other.request.etp == one.request.etp &&
               other.request.schedule == one.request.schedule &&
               other.request.chunks == one.request.chunks;
      };
      if (expected.size() < 5 && one.hoped <= 1.25 * brute.all.front().hoped &&
          std::ranges::none_of(expected, same))
        expected.push_back(one);
    }
    ASSERT_EQ(found.best.size(), expected.size()) << round;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(found.best[i].hoped, expected[i].hoped) << round << ", place " << i;
    EXPECT_TRUE(!brute.all.empty() ||
                found.least_bytes > cost::capacity_bytes(made.cluster.device));
  }
  EXPECT_LT(without, rounds / 2);
  EXPECT_LT(priced, points / 2);
}

// LOCKSTEP_ALL_SEARCHES=1 compares 220 of them.
TEST(Walk, FindsWhatPricingEverythingFinds) {
  const bool all = std::getenv("LOCKSTEP_ALL_SEARCHES") != nullptr;
  compare(all ? 220 : 12, 1);
}

// ZeRO-2 shares gradients when a rank takes its part of the batch as one microbatch, and keeps them
// whole otherwise, so its states are bounded by those of one. Here nothing else fits, with no byte
// to spare.
TEST(Walk, FindsStageTwoWhereNothingElseFits) {
  Asked asked("llama3-8b", "h100:8", 2048, 16);
  Question& q = asked.question;
  q.tp = q.cp = q.pp = 1, q.most_zero = 2, q.headroom = 0;
  PriceRequest only = Lattice::blank(q);
  only.dp = 8, only.dp_shard = 8, only.microbatch = 2, only.zero = 2,
  only.drop = model::kWholeBlock;
  const double needed = cost::device_bytes(cost::price_memory(only));
  asked.cluster.device.memory.value *=
      needed / cost::capacity_bytes(asked.cluster.device) * (1 + 1e-9);
  const Walk found = walk(Lattice(q), 5);
  ASSERT_EQ(found.best.size(), 1U);
  EXPECT_EQ(found.best[0].request.zero, 2);
  EXPECT_EQ(found.best[0].request.microbatches(), 1);
  EXPECT_EQ(found.best[0].price.time.total(), cost::price_time(only).total());
}

TEST(Walk, MillionsOfDevicesAreNoMoreLayouts) {
  const auto model = model::find("llama3-405b");
  ASSERT_TRUE(model.ok());
  std::int64_t before = 0;
  for (const char* name : {"h100:16384", "h100:1048576"}) {
    const auto cluster = cluster::cluster_from_name(name);
    ASSERT_TRUE(cluster.ok());
    const cost::ModelShape shape = cost::shape_of(model->config);
    Question q{.shape = &shape,
               .cluster = &*cluster,
               .rates = &cluster::rates_of(cluster->device),
               .devices = cluster->count,
               .seq = 8192,
               .global_batch = cluster->count / 8};
    const Walk found = walk(Lattice(q), 10);
    ASSERT_FALSE(found.best.empty());
    EXPECT_GT(found.layouts, 10000);
    EXPECT_LT(found.times, found.layouts / 5);
    EXPECT_TRUE(before == 0 || found.layouts < 2 * before) << found.layouts;
    before = found.layouts;
  }
}

}  // namespace
}  // namespace lockstep::planner
