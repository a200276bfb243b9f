#include "lockstep/train/state_check.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "lockstep/base/random.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/train/bit_flip.h"
#include "lockstep/verify/check_predictions.h"
#include "tests/train/sessions.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

constexpr const char* kCheckedLayouts[] = {
    "dp1 zero0 m2",         "dp2 zero0 m2",     "dp4 zero0 m1",          "dp2 zero1 m2",
    "dp2x2 zero1 m2",       "dp3 zero2 m1",     "dp2x2 zero2 m1",        "dp2 zero3 m2",
    "dp2x2 zero3 m2",       "tp2 dp1 zero0 m2", "tp2 dp2 zero1 m2 nosp", "tp4 dp1 zero2 m2",
    "tp2 pp2 dp2 zero3 m2", "pp2 dp2 zero1 m2", "tp2 dp2x2 zero3 m1"};

Job checked_job(spec::Spec spec, const std::string& layout, std::int64_t interval) {
  spec.train.check_interval = interval;
  return job_of(std::move(spec), layout);
}

spec::Spec small_of(bool tied, DType dtype) {
  spec::Spec spec = small_spec(tied);
  spec.train.dtype = dtype;
  spec.batch.global_batch = 24;
  return spec;
}

// How many of what a test throws dice for: as an environment variable says, else few enough for
// every day.
int trials(const char* variable, int few) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : few;
}

// Steps without a fault, with the bytes that were predicted. How many.
int clean_steps(const Job& job, int steps) {
  const std::string layout = to_text(job.spec.layout);
  const data::MockTokens tokens(1, job.spec.model.vocab, false);
  on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
    verify::RankRecord record{world.rank(), {}};
    for (int step = 0; step < steps; ++step) {
      record.steps.assign(1, measured_step(world, session, step));
      const StepReport& report = record.steps[0].report;
      EXPECT_TRUE(report.updated && !report.corrupt)
          << layout << ": " << (report.corrupt ? report.corrupt->message : "");
      if (step < 3) {
        EXPECT_EQ(verify::check_predictions(job, record).mismatch, "") << layout;
      }
      Bytes sent;
      for (const auto& [key, entry] : record.steps[0].ledger) sent += entry.sent;
      EXPECT_EQ(report.sent, sent) << layout;
    }
    EXPECT_FALSE(session.check_state()) << layout;
  });
  return steps;
}

TEST(StateCheck, FindsNothingWhereNothingIsWrongAndSendsWhatIsPredicted) {
  const int steps = trials("LOCKSTEP_CLEAN_STEPS", 3);
  int all = 0;
  for (const auto& [tied, dtype] :
       {std::pair(true, DType::kF32), {false, DType::kBF16}, {true, DType::kF64}})
    for (const char* layout : kCheckedLayouts)
      all += clean_steps(checked_job(small_of(tied, dtype), layout, 1), steps);
  for (const char* layout :
       {"dp2 ep2 zero0 m2", "dp2x2 ep2 zero3 m2", "tp2 dp2 ep4 zero3 m2",
        "tp2 etp2 dp2 ep2 zero2 m2", "cp2 dp2 ep2 zero1 m2", "pp2 dp2 ep2 zero1 m2"})
    all += clean_steps(checked_job(small_mixture(), layout, 1), steps);
  std::printf("%d clean steps, 0 false alarms\n", all);
}

TEST(StateCheck, ChangesNoBitOfTraining) {
  for (const char* layout : {"dp2 zero0 m2", "tp2 pp2 dp2 zero3 m2"}) {
    std::uint64_t digests[2] = {};
    for (const int interval : {0, 2}) {
      const Job job = checked_job(small_of(true, DType::kF32), layout, interval);
      const data::MockTokens tokens(1, job.spec.model.vocab, false);
      on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
        for (int step = 0; step < 4; ++step) session.step(step);
        const std::uint64_t digest = session.state_digest();
        if (world.rank() == Rank{0}) digests[interval / 2] = digest;
      });
    }
    EXPECT_EQ(digests[0], digests[1]) << layout;
  }
}

// A flip of a random bit of a random element of what a random rank holds.
struct Throw {
  Rank rank;
  StatePiece piece;
  BitFlip flip;
};
class Thrower {
 public:
  Thrower(const Job& job, Session& session, Rank own, const std::string& name)
      : own_(own),
        ranks_(job.mesh.world()),
        pieces_(state_pieces(job, session.workspace(), session.place(), own, Moment::kAtNorm)),
        dice_(7, name) {}

  // Chosen on all ranks, made up on its own.
  Throw next(std::int64_t step) {
    Throw made;
    made.rank = Rank{static_cast<int>(dice_.below(static_cast<std::uint64_t>(ranks_), at_++))};
    const std::uint64_t which = dice_.bits(at_++), where = dice_.bits(at_++),
                        bit = dice_.below(64, at_++), when = dice_.below(2, at_++);
    if (made.rank != own_) return made;
    made.piece = pieces_[which % pieces_.size()];
    const StatePiece& piece = made.piece;
    // What the step gathers anew heals before it is used; gradients are there in Norm alone.
    const bool in_norm =
        when == 0 || piece.holding == Holding::kGradient || piece.holding == Holding::kWeight;
    made.flip = {made.rank,
                 step,
                 in_norm ? BitFlip::When::kNorm : BitFlip::When::kBefore,
                 piece.holding,
                 piece.segment,
                 piece.at + static_cast<std::int64_t>(
                                where % static_cast<std::uint64_t>(piece.range.size())),
                 static_cast<int>(bit)};
    return made;
  }

 private:
  const Rank own_;
  const int ranks_;
  const std::vector<StatePiece> pieces_;
  const RandomStream dice_;
  std::uint64_t at_ = 0;
};

// In a step that checks, whatever bit of whatever state: replicas or digests of the owner show it
// at once, the step changes nothing, and the message names the piece and the rank.
TEST(StateCheck, FindsEveryFlippedBitInTheStepThatChecks) {
  const int flips = trials("LOCKSTEP_FLIPS", 45) / static_cast<int>(std::size(kCheckedLayouts));
  std::atomic<int> replicated = 0, single = 0;
  for (const char* layout : kCheckedLayouts) {
    const DType dtype = std::string(layout).starts_with("dp2") ? DType::kBF16 : DType::kF32;
    const Job job = checked_job(small_of(true, dtype), layout, 1);
    const data::MockTokens tokens(1, job.spec.model.vocab, false);
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      Thrower thrower(job, session, world.rank(), layout);
      std::int64_t step = 0;
      for (int flip = 0; flip < flips; ++flip) {
        EXPECT_TRUE(session.step(step).updated) << layout;  // and digests are there
        ++step;
        const Throw made = thrower.next(step);
        const bool is_mine = made.rank == world.rank();
        if (is_mine) session.plan(made.flip);
        const std::int64_t updates = session.workspace().updates();
        const StepReport report = session.step(step);
        EXPECT_FALSE(report.updated);
        EXPECT_EQ(session.workspace().updates(), updates);
        ASSERT_TRUE(report.corrupt) << layout << ", flip " << flip;
        EXPECT_EQ(report.corrupt->code, Code::kCorruptState);
        const std::string& said = report.corrupt->message;
        EXPECT_NE(said.find(join_parts("in step ", step + 1, ": ")), std::string::npos) << said;
        EXPECT_NE(said.find("rank"), std::string::npos) << said;
        if (!is_mine) continue;
        (made.piece.copies > 1 ? replicated : single) += 1;
        EXPECT_NE(said.find(name_of(job, made.piece)), std::string::npos) << said;
        const std::string number = std::to_string(made.rank.value);
        EXPECT_TRUE(said.find("rank " + number) != std::string::npos ||
                    (made.piece.copies == 2 && said.find(number) != std::string::npos))
            << said;
        if (made.piece.holding != Holding::kGradient)
          flip_bit(session.workspace(), made.flip);  // back
      }
    });
  }
  std::printf("%d flips of replicated and %d of single-owner state, all found in their step\n",
              replicated.load(), single.load());
}

// Replicas stay different until the next check; what has one owner is watched in the steps that
// check alone.
TEST(StateCheck, OfTheStepsBetweenSeesReplicasLaterAndOwnersNever) {
  constexpr std::int64_t kInterval = 4;
  const int flips = trials("LOCKSTEP_FLIPS", 24) / 2;
  for (const char* layout : {"dp2 zero0 m2", "dp2 zero3 m2"}) {
    const Job job = checked_job(small_of(true, DType::kF32), layout, kInterval);
    const bool has_replicas = job.program.step.zero == 0;
    const data::MockTokens tokens(1, job.spec.model.vocab, false);
    std::atomic<int> found = 0, waited = 0;
    for (int flip = 0; flip < flips; ++flip)
      on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
        const auto pieces =
            state_pieces(job, session.workspace(), session.place(), world.rank(), Moment::kAtRest);
        const RandomStream dice(10, join_parts(layout, " ", flip));
        const auto at = static_cast<std::int64_t>(1 + dice.below(2 * kInterval, 0));
        const StatePiece& piece = pieces[dice.below(pieces.size(), 1)];
        const auto where = static_cast<std::int64_t>(
            dice.below(static_cast<std::uint64_t>(piece.range.size()), 2));
        // Bits that rounding does not heal meanwhile.
        const int bit = 20 + static_cast<int>(dice.below(11, 3));
        if (world.rank() == Rank{1})
          session.plan({Rank{1}, at, BitFlip::When::kBefore, piece.holding, piece.segment,
                        piece.at + where, bit});
        std::int64_t step = 0;
        bool is_found = false;
        for (; step <= at + kInterval && !is_found; ++step)
          is_found = session.step(step).corrupt.has_value();
        EXPECT_EQ(is_found, has_replicas || at % kInterval == 0) << layout << ", step " << at;
        if (world.rank() != Rank{1} || !is_found) return;
        ++found;
        waited += static_cast<int>(step - 1 - at);
        EXPECT_LT(step - 1 - at, kInterval);
      });
    std::printf("%s, a check every %d steps: %d of %d flips found, after %.2f steps\n", layout,
                static_cast<int>(kInterval), found.load(), flips,
                static_cast<double>(waited) / std::max(found.load(), 1));
  }
}

TEST(StateCheck, TellsTheMinorityOfThreeAndNobodyOfTwo) {
  const auto findings = [](std::vector<std::uint64_t> digests) {
    std::vector<CheckFindings> ranks;
    for (const std::uint64_t digest : digests) ranks.push_back({{}, {{1, digest, "weight of x"}}});
    return ranks;
  };
  EXPECT_EQ(verdict_on(findings({5, 5, 6})),
            "weight of x on rank 2 differs from that on ranks 0 and 1");
  EXPECT_EQ(verdict_on(findings({5, 6})),
            "weight of x differs between ranks 0 and 1, and 2 replicas cannot tell which is wrong");
  EXPECT_EQ(verdict_on(findings({5, 6, 6, 5})),
            "weight of x differs between ranks 0, 1, 2 and 3, and 4 replicas cannot tell which is "
            "wrong");
  EXPECT_EQ(verdict_on(findings({5, 7, 5, 6, 5})),
            "weight of x on ranks 1 and 3 differs from that on ranks 0, 2 and 4");
  EXPECT_EQ(verdict_on(findings({5, 5})), "digests did not add up, though no two ranks' differ");
}

// What a rank computes wrongly in Update: replicas differ at the next check; what it alone owns is
// found as often as another rank recomputes just that.
TEST(StateCheck, ShowsWrongUpdatesToReplicasAndSamples) {
  for (const char* layout : {"dp2 zero0 m2", "dp2x2 zero2 m2", "dp2 zero3 m2", "dp1 zero0 m2"}) {
    const bool is_alone = std::string(layout).ends_with("zero3 m2") || layout[2] == '1';
    const int flips = trials("LOCKSTEP_FLIPS", is_alone ? 200 : 40) / 4;
    const Job job = checked_job(small_of(false, DType::kF32), layout, 1);
    const data::MockTokens tokens(1, job.spec.model.vocab, false);
    std::atomic<int> found = 0, all = 0;
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      const auto pieces =
          state_pieces(job, session.workspace(), session.place(), world.rank(), Moment::kAtRest);
      const RandomStream dice(9, layout);
      std::int64_t step = 0;
      for (int flip = 0; flip < flips; ++flip) {
        const auto at = static_cast<std::uint64_t>(3 * flip);
        const StatePiece& piece = pieces[dice.below(pieces.size(), at)];
        const Rank rank = {
            static_cast<int>(dice.below(static_cast<std::uint64_t>(job.mesh.world()), at + 1))};
        const BitFlip wrong = {
            rank,
            step,
            BitFlip::When::kUpdate,
            piece.holding,
            piece.segment,
            piece.at + static_cast<std::int64_t>(
                           dice.below(static_cast<std::uint64_t>(piece.range.size()), at + 2)),
            flip % 24};
        session.plan(wrong);
        EXPECT_TRUE(session.step(step++).updated);
        const StepReport report = session.step(step++);
        EXPECT_TRUE(report.corrupt || piece.copies == 1) << layout;
        if (world.rank() == rank) {
          ++all;
          found += report.corrupt ? 1 : 0;
          flip_bit(session.workspace(), wrong);
        }
        if (!report.corrupt) session.step(step++);  // notices what was put right
      }
    });
    std::printf("%s: %d of %d wrong updates found\n", layout, found.load(), all.load());
    EXPECT_GT(found.load(), 0) << layout;
  }
}

}  // namespace
}  // namespace lockstep::train
