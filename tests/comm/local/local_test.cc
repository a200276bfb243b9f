#include "lockstep/comm/local/local.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "tests/comm/short_calls.h"
#include "tests/contract/contract.h"
#include "tests/support/lateness.h"

namespace lockstep::comm {
namespace {

std::vector<Rank> everyone(const World& world) {
  std::vector<Rank> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(Rank{r});
  return ranks;
}
std::unique_ptr<Communicator> connect_all(World& world) {
  return world.connect("world", "world", everyone(world), Deadline::after(Seconds{5}));
}

// 64 ranks with 64 MiB each would be 4 GiB per operation, and sanitizers slow every byte down; what
// lies beyond one tile is covered by fewer ranks and the plain build.
std::int64_t largest_bytes(int ranks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return ranks > 8 ? 1 << 10 : 1 << 18;
#else
  return ranks > 8 ? 1 << 20 : 64 << 20;
#endif
}

class LocalContract : public testing::TestWithParam<int> {};

TEST_P(LocalContract, HoldsOnEveryRank) {
  const int size = GetParam();
  std::mutex mutex;
  std::int64_t cases = 0;
  std::vector<std::string> failures;
  run_local(size, [&](World& world) {
    const contract::Report report = contract::run(world, {largest_bytes(size)});
    std::lock_guard lock(mutex);
    cases = report.cases;
    failures.insert(failures.end(), report.failures.begin(), report.failures.end());
  });
  EXPECT_TRUE(failures.empty()) << failures.size() << " of them, first: " << failures[0];
  std::printf("local, %d ranks: %lld cases on each rank\n", size, static_cast<long long>(cases));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LocalContract, testing::Values(1, 2, 3, 4, 8, 64));

TEST(Local, SeedsChangeTheOrderAndNeverTheBits) {
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    run_local(4,
              [](World& world) {
                auto comm = connect_all(world);
                auto pair = world.connect("pair" + std::to_string(world.rank().value / 2), "pair",
                                          world.rank().value < 2 ? std::vector{Rank{0}, Rank{1}}
                                                                 : std::vector{Rank{2}, Rank{3}},
                                          soon());
                std::vector<float> a(64, 1.0f + static_cast<float>(world.rank().value)),
                    b(32, 2.0f);
                Work first = comm->all_reduce(floats(a), soon());
                Work second = pair->all_reduce(floats(b), soon());
                second.wait();
                first.wait();
                EXPECT_EQ(a[63], 10.0f);
                EXPECT_EQ(b[31], 4.0f);
              },
              {seed});
}

TEST(Local, LatenessIsThatOfTheSeed) {
  const Delivery message{"g", OpKind::kSend, 0, 1, 3, 5};
  const auto late = seeded_lateness(7, Seconds{2.0});
  EXPECT_EQ(late(message).value, seeded_lateness(7, Seconds{2.0})(message).value);
  std::set<double> drawn;
  for (const Delivery& other :
       {message, Delivery{"h", OpKind::kSend, 0, 1, 3, 5}, Delivery{"g", OpKind::kSend, 1, 0, 3, 5},
        Delivery{"g", OpKind::kSend, 0, 1, 4, 5}, Delivery{"g", OpKind::kSend, 0, 1, 3, 6},
        Delivery{"g", OpKind::kAllGather, -1, -1, -1, 5}}) {
    EXPECT_GE(late(other).value, 0);
    EXPECT_LE(late(other).value, 2);
    drawn.insert(late(other).value);
  }
  drawn.insert(seeded_lateness(8, Seconds{2.0})(message).value);
  EXPECT_EQ(drawn.size(), 7u);
}

// The first of two messages is held back; the second overtakes it, and a third that never comes
// ends with its deadline.
TEST(Local, HeldBackOperationsComeLateOrNever) {
  std::mutex mutex;
  std::vector<std::string> order, failures;
  const auto lateness = [](const Delivery& d) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    return Seconds{d.tag == 1 ? 0.2 : d.tag == 3 ? kNever : 0.0};
  };
  run_local(2,
            [&](World& world) {
              auto comm = connect_all(world);
              const int peer = 1 - world.rank().value;
              std::vector<float> data(3, 1.0f);
              const bool sends = world.rank() == Rank{0};
              const auto start = [&](std::size_t at, Deadline deadline) {
                const Buffer one{&data[at], 1, DType::kF32, {}};
                const int tag = static_cast<int>(at) + 1;
                return sends ? comm->send(one, peer, tag, deadline)
                             : comm->recv(one, peer, tag, deadline);
              };
              Work slow = start(0, soon()), quick = start(1, soon());
              Work never = start(2, Deadline::after(Seconds{0.5}));
              std::thread other([&] {
                quick.wait();
                const std::lock_guard lock(mutex);
                order.emplace_back("quick");
              });
              slow.wait();
              other.join();
              const std::lock_guard lock(mutex);
              order.emplace_back("slow");
              try {
                never.wait();
              } catch (const CommError& error) {
                failures.push_back(error.error().message);
              }
            },
            {1, lateness});
  EXPECT_EQ(order.front(), "quick");
  EXPECT_EQ(order.back(), "slow");
  ASSERT_FALSE(failures.empty());
  EXPECT_NE(failures[0].find("nothing was delivered before the deadline"), std::string::npos)
      << failures[0];
}

TEST(Local, RanksSeeWhereOthersAre) {
  std::mutex mutex;
  std::vector<std::optional<Position>> seen;
  run_local(3, [&](World& world) {
    auto comm = connect_all(world);
    if (world.rank() != Rank{2}) world.position().set({4, world.rank().value, true});
    comm->barrier(soon()).wait();
    if (world.rank() == Rank{1})
      for (const LastSeen& last_seen : world.last_seen()) seen.push_back(last_seen.position);
    comm->barrier(soon()).wait();
  });
  EXPECT_EQ(seen, (std::vector<std::optional<Position>>{Position{4, 0, true}, Position{4, 1, true},
                                                        std::nullopt}));
}

TEST(Local, AnOutputIsUnusableUntilItsOwnWait) {
  run_local(2, [](World& world) {
    auto comm = connect_all(world);
    std::vector<float> in(4, 1.0f), out(8, 0.0f), data(6, 1.0f);
    Work gather = comm->all_gather(floats(in), floats(out), soon());
    Work reduce = comm->all_reduce(floats(data), soon());
    comm->barrier(soon()).wait();  // by now both could long be finished
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[7]));
    EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[5]));
    gather.wait();
    reduce.wait();
    EXPECT_EQ(out[7], 1.0f);
    EXPECT_EQ(data[0], 2.0f);
  });
}

TEST(Local, AnInputWrittenBeforeTheWaitIsCaught) {
  std::atomic<int> caught = 0;
  run_local(2, [&](World& world) {
    auto comm = connect_all(world);
    std::vector<float> in(4, 1.0f), out(8);
    Work gather = comm->all_gather(floats(in), floats(out), soon());
    if (world.rank() == Rank{0}) in[2] = 7.0f;
    try {
      gather.wait();
    } catch (const BrokenInvariant& broken) {
      ++caught;
      EXPECT_NE(std::string(broken.what()).find("written between issue and wait"),
                std::string::npos);
    }
  });
  EXPECT_EQ(caught, 1);
}

TEST(Local, DifferentCallsOfOneGroupAreNamed) {
  std::atomic<int> told = 0;
  run_local(2, [&](World& world) {
    auto comm = connect_all(world);
    std::vector<float> a(4), b(2), c(8);
    try {
      if (world.rank() == Rank{0})
        comm->reduce_scatter(floats(a), floats(b), soon()).wait();
      else
        comm->all_gather(floats(a), floats(c), soon()).wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.error().code, Code::kMismatchedCalls);
      EXPECT_NE(error.error().message.find("rank 1 called all_gather of 4 to 8 f32"),
                std::string::npos)
          << error.error().message;
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(Local, AMessageOfAnotherSizeIsToldToBothAtOnce) {
  std::atomic<int> told = 0;
  run_local(2, [&](World& world) {
    auto comm = connect_all(world);
    std::vector<float> four(4), five(5);
    try {
      if (world.rank() == Rank{0})
        comm->send(floats(four), 1, 0, Deadline::never()).wait();
      else
        comm->recv(floats(five), 0, 0, Deadline::never()).wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.error().code, Code::kMismatchedCalls);
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(Local, TypesOfOneOperationMustAgree) {
  std::atomic<int> told = 0;
  run_local(2, [&](World& world) {
    auto comm = connect_all(world);
    std::vector<double> data(8);
    const Buffer buffer{data.data(), 4, world.rank() == Rank{0} ? DType::kF32 : DType::kF64, {}};
    try {
      comm->broadcast(buffer, 0, soon()).wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.error().code, Code::kMismatchedCalls);
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
}

TEST(Local, AStalledRankIsNamedAndThePoisonStays) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> told = 0;
  std::mutex release_mutex;
  std::condition_variable release;
  bool released = false;
  run_local(3, [&](World& world) {
    auto comm = connect_all(world);
    if (world.rank() == Rank{2}) {  // alive, but stays away until the others have given up
      std::unique_lock lock(release_mutex);
      release.wait(lock, [&] { return released; });
      return;
    }
    std::vector<float> in(4), out(12);
    try {
      comm->all_gather(floats(in), floats(out), Deadline::after(Seconds{0.2})).wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.error().code, Code::kPeerStalled);
      EXPECT_EQ(error.culprit(), Rank{2});
      EXPECT_EQ(error.op(), OpKind::kAllGather);
    }
    EXPECT_THROW(comm->barrier(soon()), CommError);
    if (++told == 2) {
      std::lock_guard lock(release_mutex);
      released = true;
      release.notify_all();
    }
  });
  EXPECT_EQ(told, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

TEST(Local, ADeadlineBlamesNobodyOnceAllHaveCalled) {
  LocalWorld world(2);
  auto rank0 = world.join(Rank{0}), rank1 = world.join(Rank{1});
  auto comm0 = connect_all(*rank0), comm1 = connect_all(*rank1);
  std::vector<float> data0 = {1, 2}, data1 = {3, 4};
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> all0(4), all1(4), in(2);
    auto gather0 = comm0->all_gather(floats(data0), floats(all0), Deadline::after(Seconds{0}));
    auto gather1 = comm1->all_gather(floats(data1), floats(all1), Deadline::after(Seconds{0}));
    auto recv = comm1->recv(floats(in), 0, 7, Deadline::after(Seconds{0}));
    auto send = comm0->send(floats(data0), 1, 7, Deadline::after(Seconds{0}));
    for (Work* work : {&send, &recv, &gather1, &gather0}) work->wait();
    ASSERT_EQ(all0, (std::vector<float>{1, 2, 3, 4}));
    ASSERT_EQ(all1, all0);
    ASSERT_EQ(in, data0);
  }
}

TEST(Local, ARankThatThrowsFailsItsPeersAtOnceAndItsErrorIsTheOneReported) {
  const auto start = std::chrono::steady_clock::now();
  try {
    run_local(4, [](World& world) {
      auto comm = connect_all(world);
      if (world.rank() == Rank{3}) throw std::runtime_error("disk full");
      std::vector<float> data(8);
      comm->all_reduce(floats(data), Deadline::never()).wait();
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "disk full");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Local, AbortEndsAWaitInProgress) {
  LocalWorld world(2);
  auto rank0 = world.join(Rank{0});
  auto comm = connect_all(*rank0);
  std::thread other([&] { comm->abort("the operator said so"); });
  try {
    comm->barrier(Deadline::never()).wait();
    ADD_FAILURE();
  } catch (const CommError& error) {
    EXPECT_NE(error.error().message.find("the operator said so"), std::string::npos);
  }
  other.join();
  EXPECT_TRUE(comm->is_poisoned());
}

}  // namespace
}  // namespace lockstep::comm
