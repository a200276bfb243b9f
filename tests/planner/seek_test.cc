#include "lockstep/planner/seek.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "lockstep/planner/explain.h"
#include "lockstep/planner/layout_of.h"
#include "tests/planner/random_question.h"

namespace lockstep::planner {
namespace {

unsigned seed() {
  const char* given = std::getenv("LOCKSTEP_SEARCH_SEED");
  return given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 19;
}

double fastest_of(const std::vector<Finalist>& found) {
  return std::ranges::min(found, {}, &Finalist::seconds).seconds;
}

std::string name_of(const Finalist& one) { return to_text(layout_of(one)); }

// How much faster another search is than the answer: its fastest row, and the one that is chosen.
struct Beaten {
  double fastest = 0, choice = 0;
  void by(double seconds, double fastest_s, double choice_s) {
    fastest = std::max(fastest, fastest_s / seconds - 1);
    choice = std::max(choice, choice_s / seconds - 1);
  }
};

// Nothing that a narrower search finds beats the answer: no schedule by itself, no neighbour.
void nothing_beats_the_answer(int rounds) {
  RandomQuestions random(seed());
  int answered = 0, chosen_for_axes = 0;
  Beaten most;
  while (answered < rounds) {
    const Question q = random.next();
    const std::vector<Finalist> found = seek(q).best;
    if (found.empty()) continue;
    ++answered;
    const double fastest = fastest_of(found), choice = found.front().seconds;
    chosen_for_axes += choice > fastest ? 1 : 0;
    ASSERT_LE(choice, fastest * (1 + kTold)) << random.name();
    EXPECT_LE(least_seconds(q), fastest) << random.name();
    for (const pipeline::CatalogRow* row : planned_schedules()) {
      Question one = q;
      one.schedules = {row};
      const std::vector<Finalist> alone = seek(one).best;
      if (alone.empty()) continue;
      EXPECT_GE(fastest_of(alone), choice * 0.999)
          << random.name() << ": " << name_of(found.front()) << " and " << name_of(alone.front());
      most.by(fastest_of(alone), fastest, choice);
    }
    for (const Alternative& other : neighbours(q, found.front())) {
      if (!other.found) continue;
      EXPECT_GE(other.found->seconds, choice * 0.999) << random.name() << ": " << other.change;
      most.by(other.found->seconds, fastest, choice);
    }
  }
  std::cout << answered << " problems: beaten by " << 100 * most.fastest << " % at most, by "
            << 100 * most.choice << " % where " << chosen_for_axes << " have fewer axes\n";
}

TEST(Seek, NothingBeatsTheAnswer) { nothing_beats_the_answer(4); }
TEST(SeekLong, NothingBeatsTheAnswer) { nothing_beats_the_answer(60); }

constexpr Resource kHardware[] = {Resource::kMemory, Resource::kNetwork, Resource::kScaleUp,
                                  Resource::kFlops};

// Any point of the lattice, whether it fits or not.
std::optional<cost::PriceRequest> random_point(RandomQuestions& random, const Question& q) {
  const Lattice lattice(q);
  if (lattice.cores().empty()) return {};
  const Core core = random.any_of(lattice.cores());
  const std::vector<int> pipelines = lattice.pipelines(core);
  if (pipelines.empty()) return {};
  cost::PriceRequest r = lattice.of(core);
  r.pp = random.any_of(pipelines);
  r.dp = lattice.data(core, r.pp);
  r.microbatch = random.any_of(lattice.microbatches(r.dp));
  const Sharding sharding = random.any_of(lattice.shardings(core, r.pp));
  const Timetable table = random.any_of(lattice.timetables(r.pp));
  if (!lattice.fits(sharding, r.microbatches()) || !lattice.fits(table, r.pp, r.microbatches()))
    return {};
  r.zero = sharding.zero, r.dp_shard = sharding.group, r.schedule = table.schedule,
  r.chunks = table.chunks;
  r.drop = random.any_of(lattice.drops());
  r.placement = random.any_of(lattice.placements(core, r.pp));
  return r;
}

void no_price_rises(int rounds) {
  RandomQuestions random(seed());
  int priced = 0;
  double most = 0;
  while (priced < rounds) {
    const Question q = random.next();
    const auto request = random_point(random, q);
    if (!request) continue;
    ++priced;
    const Finalist before = simulate({*request, cost::price(*request)});
    for (const Resource resource : kHardware)
      for (const double factor : {1.001, 1.1, 2.0, 16.0}) {
        cluster::Cluster cluster = *q.cluster;
        change_cluster(cluster, {resource, factor});
        cost::PriceRequest more = before.priced.request;
        more.cluster = &cluster;
        const Finalist after = simulate({more, cost::price(more)}, stages_of(before));
        const cost::Price price = cost::price(more),
                          priced_before = cost::price(before.priced.request);
        EXPECT_LE(after.seconds, before.seconds * (1 + 1e-12))
            << random.name() << ": " << name_of(before) << ", resource "
            << static_cast<int>(resource) << " x" << factor;
        EXPECT_LE(price.time.total(), priced_before.time.total() * (1 + 1e-12))
            << random.name() << ": " << name_of(before) << ", resource "
            << static_cast<int>(resource);
        EXPECT_TRUE(price.fits || !priced_before.fits);
        EXPECT_TRUE(after.priced.price.fits || !before.priced.price.fits);
        most = std::max(most, after.seconds / before.seconds - 1);
      }
  }
  std::cout << priced << " layouts: with more of anything " << 100 * most << " % slower at most\n";
}

TEST(Seek, NoPriceRisesWithMoreOfAnything) { no_price_rises(60); }
TEST(SeekLong, NoPriceRisesWithMoreOfAnything) { no_price_rises(1000); }

void more_is_never_slower(int rounds) {
  RandomQuestions random(seed() + 1);
  int asked = 0;
  double most = -1;
  while (asked < rounds) {
    const Question q = random.next();
    const std::vector<Finalist> found = seek(q).best;
    if (found.empty()) continue;
    for (const Resource resource : {Resource::kMemory, Resource::kNetwork, Resource::kScaleUp,
                                    Resource::kFlops, Resource::kBatch}) {
      const double factor = resource == Resource::kBatch ? 2 : random.pick({1.0125, 1.1, 2.0});
      const Alternative more = what_if(q, {resource, factor}, found.front());
      ASSERT_TRUE(more.found) << random.name();
      const double tokens =
          double(more.found->priced.request.global_batch) / double(q.global_batch);
      const double slower = more.found->seconds / (found.front().seconds * tokens) - 1;
      EXPECT_LE(slower, 1e-12) << random.name() << ": " << more.change;
      EXPECT_EQ(more.found->priced.request.cluster, q.cluster);
      most = std::max(most, slower);
      ++asked;
    }
  }
  std::cout << asked << " what-ifs: " << 100 * most << " % slower at most\n";
}

TEST(Seek, MoreIsNeverSlower) { more_is_never_slower(10); }
TEST(SeekLong, MoreIsNeverSlower) { more_is_never_slower(200); }

// Of the question, with these degrees.
Question with_core(const Question& question, const Core& core, int pp) {
  Question asked = question;
  asked.given.core = core;
  asked.pp = pp;
  return asked;
}

TEST(Seek, HasNoScheduleThatWasNotAskedFor) {
  RandomQuestions random(seed());
  std::size_t with_pipeline = 0;
  for (int i = 0; i < 12; ++i) {
    Question q = random.next();
    q.schedules = {&pipeline::row("interleaved")};
    for (const Finalist& one : seek(q).best) {
      const cost::PriceRequest& found = one.priced.request;
      EXPECT_TRUE(found.pp == 1 || found.schedule == q.schedules.front())
          << random.name() << name_of(one);
      with_pipeline += found.pp > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(with_pipeline, 0u);
}

// What is given stays; what is free is the best of all that could be given.
TEST(Seek, FillsWhatIsNotGiven) {
  const Asked asked("llama3-70b", "h100:512", 8192, 512);
  Question q = with_core(asked.question, {.tp = 4}, 4);
  q.schedules = {&pipeline::row("interleaved")};
  q.given.sharding = {1, 32};
  q.given.microbatch = 1;
  const auto found = seek_one(q);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->priced.price.fits);
  const spec::Layout made = layout_of(*found);
  EXPECT_TRUE(to_text(made).starts_with("tp4 pp4 dp32 zero1 interleaved")) << to_text(made);
  EXPECT_EQ(found->priced.request.shape, q.shape);
  for (const int chunks : {2, 3, 4, 5, 7, 10, 14}) {
    spec::Layout other = made;
    other.chunks = chunks, other.recompute = {model::kSelective}, other.layers = {};
    const auto timed = time_layout(q, other, 1);
    ASSERT_TRUE(timed.ok());
    if (timed->priced.price.fits) {
      EXPECT_LE(found->seconds, timed->seconds * 1.001) << chunks;
    }
  }
}

// With all but the degrees free it is the search over the same degrees, or better: it tries more.
TEST(Seek, GivenDegreesAloneAreASearch) {
  const Asked asked("llama3-70b", "h100:512", 8192, 512);
  Question q = asked.question;
  q.tp = 4, q.pp = 4, q.cp = 1;
  const auto found = seek_one(with_core(asked.question, {.tp = 4}, 4));
  ASSERT_TRUE(found);
  EXPECT_LE(found->seconds, seek(q).best.front().seconds * 1.001);
}

TEST(Seek, WhatIsGivenStays) {
  const Asked asked("llama3-70b", "h100:512", 131072, 64);
  Question q = with_core(asked.question, {.tp = 4, .cp = 8}, 4);
  q.schedules = {&pipeline::row("gpipe")};
  q.given.sharding = {2, 32};
  q.given.microbatch = 2;
  q.given.layers = {21, 21, 21, 17};
  q.given.sp = false;
  const auto expect = [&](const model::Drop& drop, const std::string& recompute) {
    q.given.drop = drop;
    for (const model::CpMethod context : model::kCpMethods)
      for (const auto& [placement, order] :
           {std::pair{cost::Placement::kPipeInside, ""},
            std::pair{cost::Placement::kDataInside, " order=tp,cp,dp,pp"}}) {
        q.given.context = context, q.given.placement = placement;
        const auto found = seek_one(q);
        ASSERT_TRUE(found);
        EXPECT_EQ(name_of(*found),
                  join_parts("tp4 cp8 pp4 dp4 nosp zero2 gpipe m8 cp_comm_type=", to_text(context),
                             recompute, " layers=21x3+17", order));
      }
  };
  expect({}, "");
  expect(model::kSelective, " recompute=selective");
  expect({.mlp_normed = true}, " recompute=mlp_norm.output");
  expect(model::kWholeBlock, " recompute=full");
  q.given.blocks = {4, 3, 2, 1}, q.given.recomputed = 4;
  model::Drop cheap_and_blocks = model::kSelective;
  cheap_and_blocks.block = true;
  expect(cheap_and_blocks, " recompute=selective+full:4+3+2+1");
}

// Where nothing fits the smallest is shown, if anything divides.
TEST(Seek, ShowsTheSmallestWhereNothingFits) {
  const Asked asked("llama3-405b", "h100:64", 8192, 64);
  const Question q = with_core(asked.question, {.tp = 8}, 8);
  EXPECT_TRUE(seek(q).best.empty());
  const auto found = seek_one(q);
  ASSERT_TRUE(found);
  const double bytes = cost::device_bytes(found->priced.price.memory);
  const Lattice lattice(q);
  for (const Timetable& table : lattice.timetables(8))
    for (const model::Drop& others : {model::kKeepAll, model::kSelective}) {
      cost::PriceRequest r = found->priced.request;
      r.schedule = table.schedule, r.chunks = table.chunks, r.drop = others;
      r.set_recomputed(q.shape->layers);
      EXPECT_LE(bytes, cost::device_bytes(cost::price_memory(r)) * (1 + 1e-6));
    }
  const Asked few("llama3-70b", "h100:64", 8192, 8);
  Question none = with_core(few.question, {.tp = 8}, 8);
  none.schedules = {&pipeline::row("dualpipe-v")};
  EXPECT_FALSE(seek_one(none));  // 16 microbatches are needed
}

}  // namespace
}  // namespace lockstep::planner
