#include "lockstep/launch/coordinator.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/address.h"
#include "lockstep/launch/message.h"

namespace lockstep::launch {
namespace {

// Two hosts of two ranks each, without their launchers: what they would say is said for them.
class CoordinatorTest : public testing::Test {
 protected:
  void make(int max_restarts, Seconds wait = {300}) {
    coordinator_ = std::make_unique<Coordinator>(
        Policy{2, 4, max_restarts, wait, "127.0.0.1", {0.001}, [this] { return checkpoint_; }},
        [this](int host, const Json& message) { sent_[host].push_back(message); },
        [this](const std::string& text) { told_ += text + "\n"; });
  }
  static Json hello(int world = 4, int hosts = 2) {
    return Json::object(
        {{"is", "hello"}, {"name", "box"}, {"hosts", hosts}, {"ranks", 2}, {"world", world}});
  }
  void join_both() {
    for (const int host : {0, 1}) ASSERT_TRUE(coordinator_->join(host, hello()).ok());
    coordinator_->tick();
  }
  Json ended(Json more = Json::object()) const {
    return more.set("is", "ended").set("generation", generation());
  }
  static Json killed(int rank, int steps = 0) {
    return Json::object({{"rank", rank}, {"how", "was ended by signal 9"}, {"steps", steps}});
  }
  static Json exited(int rank, int code) {
    return Json::object({{"rank", rank}, {"exit", code}, {"how", "ended"}});
  }
  // What of a kind a host was last sent.
  Json last(int host, const std::string& is) const {
    const auto found = sent_.find(host);
    if (found != sent_.end())
      for (auto at = found->second.rbegin(); at != found->second.rend(); ++at)
        if (text_in(*at, "is") == is) return *at;
    return Json::object();
  }
  std::int64_t generation() const { return int_in(last(0, "start"), "generation", 1).value_or(0); }
  Verdict verdict() const { return verdict_of(last(0, "over")); }
  void fail_once(Json how) {
    coordinator_->hear(1, ended(std::move(how)));
    coordinator_->hear(0, ended());
    await_start();
  }
  // Pauses of this policy are of milliseconds.
  void await_start() {
    const std::int64_t before = generation();
    const Deadline deadline = Deadline::after(Seconds{5});
    while (!coordinator_->is_over() && generation() == before && !deadline.expired())
      coordinator_->tick();
  }

  std::int64_t checkpoint_ = -1;
  std::map<int, std::vector<Json>> sent_;
  std::string told_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, StartsWhenAllAreThereWithPlacesAndAStoreThatListens) {
  make(5);
  ASSERT_TRUE(coordinator_->join(1, hello()).ok());
  coordinator_->tick();
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(coordinator_->join(0, hello()).ok());
  coordinator_->tick();
  EXPECT_EQ(int_in(last(0, "start"), "first_rank", 0), 0);
  EXPECT_EQ(int_in(last(1, "start"), "first_rank", 0), 2);
  EXPECT_EQ(int_in(last(1, "start"), "world", 0), 4);
  const auto port = int_in(last(1, "start"), "port", 1);
  EXPECT_GE(Descriptor(comm::connect_to("127.0.0.1", static_cast<std::uint16_t>(*port),
                                        Deadline::after(Seconds{5}))),
            0);
  EXPECT_EQ(last(1, "start").find("store_socket"), nullptr);  // no descriptor of another process
}

TEST_F(CoordinatorTest, EndsWhenAllHaveFinished) {
  make(5);
  join_both();
  coordinator_->hear(0, ended());
  EXPECT_FALSE(coordinator_->is_over());
  coordinator_->hear(1, ended());
  EXPECT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 0);
  EXPECT_EQ(last(1, "over"), last(0, "over"));
}

TEST_F(CoordinatorTest, AFailureEndsAllAndStartsAnewUnderANewNumberAndPort) {
  make(5);
  join_both();
  const Json before = last(0, "start");
  coordinator_->hear(1, killed(2).set("is", "failed").set("generation", generation()));
  EXPECT_EQ(int_in(last(0, "end"), "generation", 1), 1);
  fail_once(killed(2));
  EXPECT_EQ(generation(), 2);
  EXPECT_NE(*last(0, "start").find("port"), *before.find("port"));
  EXPECT_NE(told_.find("rank 2 on box"), std::string::npos) << told_;
}

// A death explains the exits of the others, wherever it comes to be known first.
TEST_F(CoordinatorTest, NamesTheDeathAndWhatAnotherRankSaidOfIt) {
  make(0);
  join_both();
  coordinator_->hear(0,
                     ended(exited(0, 4).set("code", 502).set("said", "rank 3 was at B of unit 2")));
  coordinator_->hear(1, ended(killed(3)));
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 4);
  const std::string text = verdict().error->message;
  EXPECT_TRUE(text.starts_with("rank 3 on box")) << text;
  EXPECT_NE(text.find("LS0502: rank 3 was at B of unit 2"), std::string::npos) << text;
}

TEST_F(CoordinatorTest, WhatWouldFailAgainIsNotRestarted) {
  for (const auto& [how, code] : std::vector<std::pair<Json, int>>{
           {exited(2, 2), 2},
           {exited(2, 3), 3},
           {exited(2, 4).set("code", 501).set("said", "another job"), 4},
           {exited(2, 4).set("code", 701).set("said", "diverged"), 4}}) {
    sent_.clear();
    make(5);
    join_both();
    fail_once(how);
    EXPECT_TRUE(coordinator_->is_over());
    EXPECT_EQ(verdict().exit_code, code);
  }
}

TEST_F(CoordinatorTest, ABugOrALostPeerIsRestarted) {
  for (const Json& how : {exited(2, 70), exited(2, 4).set("code", 503).set("said", "stalled"),
                          exited(2, 4), exited(2, 1)}) {
    sent_.clear();
    make(5);
    join_both();
    fail_once(how);
    EXPECT_EQ(generation(), 2);
  }
}

TEST_F(CoordinatorTest, GivesUpAfterThreeRestartsInVainAndNoEarlier) {
  make(100);
  join_both();
  for (int restart = 1; restart <= 3; ++restart) {
    fail_once(killed(2, 7));  // step 7 is progress once
    ASSERT_EQ(generation(), 1 + restart);
  }
  fail_once(killed(2, 7));
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 4);
  EXPECT_NE(verdict().error->help.find("restarted 3 times without"), std::string::npos);
}

TEST_F(CoordinatorTest, ALaterStepOrANewerCheckpointIsProgress) {
  make(100);
  join_both();
  for (int round = 0; round < 12; ++round) {
    fail_once(killed(2, round % 3 == 2 ? 10 + round : 0));
    ASSERT_EQ(generation(), 2 + round);
  }
  for (int round = 0; round < 12; ++round) {
    if (round % 3 == 0) checkpoint_ = 100 + round;
    fail_once(killed(2));
    ASSERT_EQ(generation(), 14 + round);
  }
}

TEST_F(CoordinatorTest, RestartsAsOftenAsAllowed) {
  make(2);
  join_both();
  for (int step = 1; step <= 3; ++step) fail_once(killed(2, step));
  EXPECT_EQ(generation(), 3);
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_NE(verdict().error->help.find("--max-restarts"), std::string::npos);
}

TEST_F(CoordinatorTest, AnEarlierGenerationAndNonsenseAreNotHeard) {
  make(5);
  join_both();
  fail_once(killed(2));
  ASSERT_EQ(generation(), 2);
  for (Json message :
       {Json::object({{"is", "ended"}, {"generation", 1}}), Json::object({{"is", "ended"}}),
        Json::object({{"is", "ended"}, {"generation", 3}}), Json::object(),
        Json::object({{"is", 5}, {"generation", "2"}}),
        Json::object({{"is", "failed"}, {"generation", 1}, {"rank", 2}, {"how", "died"}})})
    for (const int host : {0, 1}) coordinator_->hear(host, message);
  EXPECT_FALSE(coordinator_->is_over());
  EXPECT_EQ(int_in(last(0, "end"), "generation", 2), std::nullopt);
}

TEST_F(CoordinatorTest, ALostHostIsNamedAndMayComeAgain) {
  make(5);
  join_both();
  coordinator_->lose(1, "closed its connection");
  coordinator_->hear(0, ended(exited(0, 4)));
  EXPECT_FALSE(coordinator_->is_over());
  EXPECT_NE(told_.find("host 1 (box) was lost: its launcher closed its connection; restart 1"),
            std::string::npos)
      << told_;
  coordinator_->tick();
  EXPECT_EQ(generation(), 1);
  ASSERT_TRUE(coordinator_->join(1, hello()).ok());
  coordinator_->tick();
  EXPECT_EQ(generation(), 2);
}

TEST_F(CoordinatorTest, AHostThatStaysAwayEndsTheJob) {
  make(5, {0.01});
  ASSERT_TRUE(coordinator_->join(0, hello()).ok());
  await_start();
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 4);
  EXPECT_NE(verdict().error->message.find("1 of 2 hosts: 1"), std::string::npos);
}

TEST_F(CoordinatorTest, RefusesASecondHostOfANumberAndAnotherJob) {
  make(5);
  ASSERT_TRUE(coordinator_->join(1, hello()).ok());
  EXPECT_FALSE(coordinator_->join(1, hello()).ok());
  EXPECT_FALSE(coordinator_->join(0, hello(8)).ok());
  EXPECT_FALSE(coordinator_->join(0, hello(4, 3)).ok());
  EXPECT_TRUE(coordinator_->join(0, hello()).ok());
}

TEST_F(CoordinatorTest, ToStopReachesAllAndIsNoFailure) {
  make(5);
  join_both();
  coordinator_->hear(1, Json::object({{"is", "stop"}}));
  EXPECT_EQ(text_in(last(0, "stop"), "is"), "stop");
  coordinator_->hear(0, ended().set("stopped", true));
  coordinator_->hear(1, ended().set("stopped", true));
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_FALSE(verdict().error);
}

TEST_F(CoordinatorTest, RanksThatOthersAskedToStopAreNotStartedAgain) {
  make(5);
  join_both();
  for (const int host : {0, 1}) coordinator_->hear(host, ended().set("stopped", true));
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 143);
}

TEST_F(CoordinatorTest, IsStoppedWhileItWaitsForHosts) {
  make(5);
  ASSERT_TRUE(coordinator_->join(0, hello()).ok());
  coordinator_->hear(0, Json::object({{"is", "stop"}}));
  coordinator_->tick();
  EXPECT_TRUE(coordinator_->is_over());
  EXPECT_EQ(verdict().exit_code, 143);
}

TEST_F(CoordinatorTest, LongTextsOfOthersFitIntoItsMessages) {
  make(0);
  join_both();
  fail_once(exited(2, 4).set("code", 502).set("said", std::string(4000, '\x01')));
  ASSERT_TRUE(coordinator_->is_over());
  EXPECT_LT(last(0, "over").dump().size(), 8000u);
}

}  // namespace
}  // namespace lockstep::launch
