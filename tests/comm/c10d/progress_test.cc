#include "lockstep/comm/c10d/progress.h"

#include <gtest/gtest.h>

#include <optional>

namespace lockstep::comm {
namespace {

Deadline shortly() { return Deadline::after(Seconds{10}); }

// Boards of several ranks in one process, on a store of the test's own.
class Progress : public testing::Test {
 protected:
  std::unique_ptr<ProgressBoard> board(int rank,
                                       std::shared_ptr<const comm::PositionCell> position = {}) {
    return std::make_unique<ProgressBoard>(
        *store_,
        comm::Rendezvous{Rank{rank}, 4, "127.0.0.1", store_->port(), /*agent_hosts_store=*/true},
        shortly(), std::move(position));
  }
  std::unique_ptr<Store> store_ = Store::host("127.0.0.1", 0);
};

TEST_F(Progress, FollowsTheWaitsToTheSilentRank) {
  auto zero = board(0), one = board(1), two = board(2);
  store_->set("progress/3", "17 -1 0 -1 -1 0 0 ");  // wrote a word once, then fell silent
  const ProgressBoard::Waiting first(*zero, Rank{1}, "all_gather on group a");
  const ProgressBoard::Waiting second(*one, Rank{2}, "all_gather on group b");
  const ProgressBoard::Waiting third(*two, Rank{3}, "recv on group c");
  const Blame blame = zero->find_culprit(Rank{1});
  EXPECT_EQ(blame.rank, Rank{3});
  EXPECT_EQ(blame.verdict, "rank 3 shows no sign of life");
  EXPECT_EQ(two->find_culprit(Rank{0}).rank, Rank{3});  // adopts the verdict, whomever it suspects
}

TEST_F(Progress, ShowsWhereRanksWereAndWhoIsSilent) {
  const auto cell = std::make_shared<comm::PositionCell>();
  cell->set({2, 17, true});
  auto zero = board(0, cell), one = board(1), two = board(2);
  store_->set("progress/3", "17 -1 0 4 5 3 0 ");
  const std::vector<comm::LastSeen> before = two->last_seen();
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(before[0].position, (comm::Position{2, 17, true}));
  EXPECT_EQ(before[1].position, std::nullopt);
  EXPECT_EQ(before[3].position, (comm::Position{4, 5, false, false, 3}));
  EXPECT_FALSE(before[3].is_silent);
  one->find_culprit(Rank{3});
  const std::vector<comm::LastSeen> after = one->last_seen();
  ASSERT_EQ(after.size(), 4u);
  EXPECT_TRUE(after[3].is_silent && !after[0].is_silent);
  EXPECT_EQ(after[0].position, (comm::Position{2, 17, true}));
  store_.reset();
  EXPECT_TRUE(two->last_seen().empty());
}

TEST_F(Progress, NamesALivingRankThatDoesNotTakePart) {
  auto zero = board(0), one = board(1), two = board(2), three = board(3);
  const ProgressBoard::Waiting first(*zero, Rank{1}, "barrier on group a");
  EXPECT_EQ(zero->find_culprit(Rank{1}).verdict, "rank 1 is alive but does not take part");
}

TEST_F(Progress, NamesWhoWaitsForMeInSomethingElse) {
  auto zero = board(0), one = board(1), two = board(2), three = board(3);
  const ProgressBoard::Waiting first(*zero, Rank{1}, "barrier on group a");
  const ProgressBoard::Waiting second(*one, Rank{0}, "recv on group b");
  EXPECT_EQ(zero->find_culprit(Rank{1}).verdict,
            "rank 1 is alive but waits for rank 0 in recv on group b");
}

TEST_F(Progress, FindsTheSilentRankBehindACircleOfTheLiving) {
  auto zero = board(0), one = board(1), two = board(2);
  store_->set("progress/3", "17 0 0 -1 -1 0 0 reduce_scatter on group a");
  const ProgressBoard::Waiting first(*zero, Rank{1}, "reduce_scatter on group a");
  const ProgressBoard::Waiting second(*one, Rank{2}, "reduce_scatter on group a");
  const ProgressBoard::Waiting third(*two, Rank{0}, "reduce_scatter on group a");
  EXPECT_EQ(zero->find_culprit(Rank{1}).verdict, "rank 3 shows no sign of life");
}

TEST_F(Progress, ARankThatLeftIsNotTakenForDead) {
  auto zero = board(0), one = board(1), two = board(2);
  board(3).reset();
  const ProgressBoard::Waiting first(*zero, Rank{1}, "barrier on group a");
  EXPECT_EQ(zero->find_culprit(Rank{1}).verdict, "rank 1 is alive but does not take part");
  EXPECT_EQ(one->find_culprit(Rank{3}).rank, Rank{1});
}

TEST_F(Progress, ALeftRankThatIsWaitedForIsNamed) {
  auto zero = board(0), one = board(1), two = board(2);
  board(3).reset();
  const ProgressBoard::Waiting first(*zero, Rank{3}, "barrier on group a");
  EXPECT_EQ(zero->find_culprit(Rank{3}).verdict, "rank 3 has left the job");
}

// Anybody who reaches the store can write there.
TEST_F(Progress, ForgedWordsAndVerdictsAreAsIfNeverWritten) {
  store_->set("progress/verdict", "100000000 rank 5 shows no sign of life");
  for (const char* word : {"17 100000000 0 -1 -1 0 0 x", "17 -7 0 0 -9 0 1 x", "garbage"}) {
    auto zero = board(0), one = board(1), two = board(2);
    store_->set("progress/3", word);
    EXPECT_EQ(zero->find_culprit(Rank{3}).verdict, "rank 3 shows no sign of life");
    const std::vector<comm::LastSeen> seen = zero->last_seen();
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_TRUE(seen[3].is_silent && !seen[3].position);
  }
}

TEST_F(Progress, AStoreThatIsGoneMeansItsHost) {
  auto one = board(1);
  store_.reset();
  EXPECT_EQ(one->find_culprit(Rank{2}).rank, Rank{0});
}

TEST_F(Progress, TheStoreSetsAKeyOnce) {
  EXPECT_FALSE(store_->has("k"));
  EXPECT_EQ(store_->set_once("k", "first"), "first");
  EXPECT_EQ(store_->set_once("k", "second"), "first");
  EXPECT_TRUE(store_->has("k"));
  EXPECT_EQ(store_->get_all({"k"}), std::vector<std::string>{"first"});
}

}  // namespace
}  // namespace lockstep::comm
