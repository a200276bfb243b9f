#include "lockstep/program/deadlock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "tests/program/explorer.h"
#include "tests/program/listing.h"
#include "tests/support/golden.h"

namespace lockstep::program {
namespace {

bool is_transfer(const Op& op) { return op.kind == OpKind::kSend || op.kind == OpKind::kPostRecv; }

// Levels at which the program runs, in the order of Transport: '.' where it does not.
std::string levels(const Program& program) {
  std::string text;
  for (const Transport transport : kTransports)
    text += check_deadlock(program, transport).ok() ? "AbBDC"[static_cast<int>(transport)] : '.';
  return text;
}

// schedules.md 2.3, first row: a receive at its reader is safe on queues for GPipe alone.
TEST(Deadlock, NaivePlacementNeedsTagsOrAQueuePerDirection) {
  EXPECT_EQ(levels(naive_1f1b()), "...DC");
  EXPECT_EQ(levels(gpipe()), "AbBDC");
  EXPECT_EQ(levels(zero3()), "AbBDC");
}

// Both ends placed at the sender's point of one global order: safe on every transport.
TEST(Deadlock, ProjectionOfOneOrderIsSafeEverywhere) {
  EXPECT_EQ(
      levels(listing(two_stages(), {"load0 F0.0 F1.0 send0 load1 F0.1 F1.1 recv2 send1 wait:recv2",
                                    "recv0 wait:recv0 send2 recv1 wait:recv1"})),
      "AbBDC");
}

// Two chunks on two coordinates: each coordinate sends and then receives over one queue
// (pytorch issue 172668).
Program criss_cross() {
  const StepShape step = {.shape = {.coords = 2, .chunks = 2, .microbatches = 2},
                          .stage_begin = {0, 1, 2, 3, 4}};
  // Transfers forwards: 0 and 1 leave unit 0, 2 and 3 unit 1.
  return listing(step, {"send0 wait:send0 send1 recv2 wait:recv2 wait:send1",
                        "recv0 wait:recv0 send2 recv1 wait:recv1 wait:send2"});
}

// With two coordinates and chunks the next coordinate is also the one before, so outputs and
// gradients go the same way; tags that tell direction alone leave them in one queue (Megatron-LM
// issue 750). lower() gives both one order; here the receiver has another.
Program both_ways_to_one_peer() {
  const StepShape step = {.shape = {.coords = 2, .chunks = 2, .microbatches = 2},
                          .stage_begin = {0, 1, 2, 3, 4}};
  // From coordinate 1: transfer 3 is the output of unit 1, 10 the gradient of unit 2's.
  return listing(step,
                 {"recv3 wait:recv3 recv10 wait:recv10", "send10 send3 wait:send10 wait:send3"});
}

// Circles of waits that pipelines have shipped with, and the transport that still runs each.
TEST(Deadlock, RefusesTheKnownCircles) {
  const Result<pipeline::Schedule> groups =
      pipeline::find("interleaved")->build_grouped({4, 3, 5}, 4);
  ASSERT_FALSE(groups.ok());
  std::string text = "interleaved p=4 v=3 m=5 in groups of 4\n" + groups.error().message + "\n";
  const auto tell = [&](const char* title, const Program& program, Transport transport) {
    const Result<void> result = check_deadlock(program, transport);
    ASSERT_FALSE(result.ok()) << title;
    EXPECT_EQ(result.error().code, Code::kDeadlock);
    text += std::string("\n") + title + "\n" + result.error().message + "\n";
    EXPECT_TRUE(check_deadlock(program, Transport::kTagged).ok()) << title;
  };
  tell("1F1B p=2 m=2, each receive at its reader", naive_1f1b(), Transport::kQueuePerPeer);
  tell("pytorch issue 172668", criss_cross(), Transport::kQueuePerPeer);
  tell("p=2 v=2 m=2, tags of direction alone", both_ways_to_one_peer(),
       Transport::kFifoPerDirection);
  EXPECT_EQ(levels(criss_cross()), "...DC");
  EXPECT_EQ(levels(both_ways_to_one_peer()), "....C");
  EXPECT_TRUE(support::matches_golden("schedule/known_circles.txt", text));
}

TEST(Deadlock, CollectivesOverCoordinatesMustComeInOneOrder) {
  const StepShape step = {.shape = {.coords = 2}, .stage_begin = {0, 2, 4}, .tied = true};
  EXPECT_EQ(levels(listing(step, {"tied norm", "tied norm"})), "AbBDC");
  EXPECT_EQ(levels(listing(step, {"norm tied", "tied norm"})), ".....");
  EXPECT_EQ(levels(listing(step, {"tied norm", "norm"})), ".....");
  EXPECT_EQ(levels(listing(step, {"tied norm", "tied norm:data"})), ".....");
  EXPECT_EQ(levels(listing(step, {"norm tied:self", "tied:self norm"})), "AbBDC");
}

TEST(Deadlock, MessagesTellTheWholeChain) {
  std::string text;
  const auto tell = [&](const Program& program, Transport transport) {
    const Result<void> result = check_deadlock(program, transport);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kDeadlock);
    text += result.error().message + "\n\n";
  };
  tell(naive_1f1b(), Transport::kBlocking);
  tell(naive_1f1b(), Transport::kQueuePerPeer);
  tell(listing(two_stages(),
               {"recv2 wait:recv2 send0 wait:send0", "recv0 wait:recv0 send2 wait:send2"}),
       Transport::kTagged);
  tell(listing(two_stages(), {"send0 wait:send0 norm", "norm"}), Transport::kTagged);
  tell(listing(two_stages(),
               {"send0 send1 wait:send1 wait:send0", "recv1 recv0 wait:recv0 wait:recv1"}),
       Transport::kFifoPerDirection);
  EXPECT_TRUE(support::matches_golden("schedule/deadlocks.txt", text));
}

// The communication of a pipeline with one unit per stage, and nothing else.
class Skeleton {
 public:
  Skeleton(Dice& dice, int coords, int chunks, int microbatches, bool is_projection) : dice_(dice) {
    StepShape& step = program_.step;
    step.shape = {.coords = coords, .chunks = chunks, .microbatches = microbatches};
    step.stage_begin.clear();
    for (int unit = 0; unit <= coords * chunks; ++unit) step.stage_begin.push_back(unit);
    program_.transfers = usual_transfers(step);
    program_.lists.resize(static_cast<std::size_t>(coords));
    const bool is_1f1b = dice.coin(), is_lazy = dice.coin();
    if (is_projection) project_one_order();
    for (int coord = 0; coord < coords && !is_projection; ++coord) fill(coord, is_1f1b, is_lazy);
  }

  Program take(int num_faults) {
    for (int i = 0; i < num_faults; ++i) spoil();
    return std::move(program_);
  }

 private:
  std::vector<Op>& list(int coord) { return program_.lists[static_cast<std::size_t>(coord)]; }

  // Both ends of each transfer, in an order drawn for all coordinates together; waits come some ops
  // later.
  void project_one_order() {
    std::vector<std::size_t> order(program_.transfers.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = 1; i < order.size(); ++i)
      std::swap(order[i], order[static_cast<std::size_t>(dice_.between(0, static_cast<int>(i)))]);
    for (const std::size_t i : order)
      for (const OpKind kind : {OpKind::kSend, OpKind::kPostRecv}) {
        const Transfer& transfer = program_.transfers[i];
        auto& ops = list(kind == OpKind::kSend ? transfer.from.value : transfer.to.value);
        const auto index = static_cast<std::int32_t>(ops.size());
        ops.push_back(
            {.kind = kind, .group = CommGroup::kPeer, .transfer = static_cast<std::int32_t>(i)});
        if (dice_.coin()) ops.push_back({.kind = OpKind::kWait, .target = index});
      }
    for (auto& ops : program_.lists)
      for (std::size_t i = 0, end = ops.size(); i < end; ++i) {
        const auto index = static_cast<std::int32_t>(i);
        const bool is_waited_for = i + 1 < end && ops[i + 1].target == index;
        if (is_transfer(ops[i]) && !is_waited_for)
          ops.push_back({.kind = OpKind::kWait, .target = index});
      }
  }

  // Receives, if lazy, right before they are waited for, else one pass ahead.
  void fill(int coord, bool is_1f1b, bool is_lazy) {
    const pipeline::Shape& shape = program_.step.shape;
    const int m = shape.microbatches;
    const int warm = is_1f1b ? std::min(shape.coords - 1 - coord, m) : m;
    struct Step {
      int recv, send;
    };
    std::vector<Step> steps;
    const auto forward = [&](int mb) {
      steps.push_back(
          {program_.find_transfer(false, coord - 1, mb), program_.find_transfer(false, coord, mb)});
    };
    const auto backward = [&](int mb) {
      steps.push_back(
          {program_.find_transfer(true, coord, mb), program_.find_transfer(true, coord - 1, mb)});
    };
    for (int mb = 0; mb < warm; ++mb) forward(mb);
    for (int mb = warm; mb < m; ++mb) forward(mb), backward(mb - warm);
    for (int mb = m - warm; mb < m; ++mb) backward(mb);
    std::vector<int> sent, posted_at(steps.size() + 1, -1);
    const auto post = [&](std::size_t step) {
      if (step >= steps.size() || steps[step].recv < 0 || posted_at[step] >= 0) return;
      posted_at[step] = static_cast<int>(list(coord).size());
      list(coord).push_back(
          {.kind = OpKind::kPostRecv, .group = CommGroup::kPeer, .transfer = steps[step].recv});
    };
    const auto wait = [&](int index) {
      list(coord).push_back({.kind = OpKind::kWait, .target = index});
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
      post(i);
      if (!is_lazy) post(i + 1);
      if (posted_at[i] >= 0) wait(posted_at[i]);
      if (steps[i].send < 0) continue;
      sent.push_back(static_cast<int>(list(coord).size()));
      list(coord).push_back(
          {.kind = OpKind::kSend, .group = CommGroup::kPeer, .transfer = steps[i].send});
      if (dice_.between(0, 3) == 0) wait(sent.back()), sent.pop_back();
    }
    for (int index : sent) wait(index);
    if (coord == 0 || coord == shape.coords - 1)
      list(coord).push_back({.kind = OpKind::kReduceTied, .group = CommGroup::kTied});
    list(coord).push_back({.kind = OpKind::kNorm, .group = CommGroup::kDataThenPipeline});
  }

  // Moves one op somewhere else in its list, or leaves it out together with its Wait.
  void spoil() {
    auto& ops = list(dice_.between(0, program_.step.shape.coords - 1));
    const int size = static_cast<int>(ops.size());
    if (size < 2) return;
    const int victim = dice_.between(0, size - 1);
    std::vector<int> order;
    const bool is_drop = dice_.between(0, 4) == 0;
    for (int i = 0; i < size; ++i) {
      const bool is_its_wait = ops[static_cast<std::size_t>(i)].kind == OpKind::kWait &&
                               ops[static_cast<std::size_t>(i)].target == victim;
      if (i != victim && !(is_drop && is_its_wait)) order.push_back(i);
    }
    if (!is_drop)
      order.insert(
          order.begin() + dice_.between(std::max(0, victim - 4), std::min(size - 1, victim + 4)),
          victim);
    std::vector<Op> changed;
    for (const int index : order) {
      changed.push_back(ops[static_cast<std::size_t>(index)]);
      if (changed.back().kind != OpKind::kWait) continue;
      const auto at = std::ranges::find(order, changed.back().target) - order.begin();
      changed.back().target = static_cast<std::int32_t>(at);
      if (at + 1 >= static_cast<std::ptrdiff_t>(changed.size()))
        changed.pop_back(), dangling_ = true;
    }
    if (!dangling_) ops = std::move(changed);
    dangling_ = false;
  }

  Dice& dice_;
  Program program_;
  bool dangling_ = false;
};

TEST(Deadlock, OneSortAgreesWithEveryInterleaving) {
  Dice dice(5);
  int runs[std::size(kTransports)] = {}, num_programs = 0;
  std::size_t num_states = 0;
  for (int round = 0; round < 300; ++round) {
    const int coords = dice.between(2, 3);
    const bool is_projection = dice.coin();
    const int chunks = is_projection ? dice.between(1, 2) : 1;
    const int most = chunks == 2 ? 1 : coords == 2 || round % 40 == 0 ? 3 : 2;
    const Program program = Skeleton(dice, coords, chunks, dice.between(1, most), is_projection)
                                .take(dice.between(0, 3));
    ++num_programs;
    bool ran_before = false;
    for (const Transport transport : kTransports) {
      Explorer explorer(program, transport);
      const Result<void> sorted = check_deadlock(program, transport);
      ASSERT_EQ(explorer.all_end(), sorted.ok())
          << to_text(transport) << "\n"
          << to_text(program) << (sorted.ok() ? "" : sorted.error().message);
      runs[static_cast<int>(transport)] += sorted.ok();
      ASSERT_GE(sorted.ok(), ran_before)
          << "a more forgiving transport refuses " << to_text(program);
      ran_before = sorted.ok();
      num_states += explorer.num_states();
    }
  }
  std::string text;
  for (const int count : runs) text += std::to_string(count) + " ";
  std::cout << num_programs << " programs, " << num_states << " states; by transport " << text
            << "run\n";
  for (const int count : runs) {
    EXPECT_GT(count, 10) << text;
    EXPECT_LT(count, num_programs - 10) << text;
  }
  EXPECT_TRUE(std::ranges::is_sorted(runs)) << "a more forgiving transport runs more: " << text;
}

TEST(Deadlock, LongListsTakeLinearTime) {
  Dice dice(6);
  const Program program = Skeleton(dice, 16, 1, 2000, false).take(0);
  std::size_t num_ops = 0;
  for (const auto& list : program.lists) num_ops += list.size();
  EXPECT_GT(num_ops, 200'000u);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(levels(program).back(), 'C');
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10);
}

}  // namespace
}  // namespace lockstep::program
