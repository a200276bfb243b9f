#include "lockstep/comm/communicator.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local/local.h"
#include "lockstep/comm/measure.h"
#include "tests/comm/short_calls.h"

namespace lockstep::comm {
namespace {

TEST(Communicator, ArgumentsThatDoNotFitAreBrokenInvariants) {
  run_local(2, [](World& world) {
    auto comm = world.connect("g", "tp", {Rank{0}, Rank{1}}, soon());
    std::vector<float> four(4), six(6);
    std::vector<std::byte> bytes(4);
    EXPECT_THROW(comm->all_gather(floats(four), floats(six), soon()), BrokenInvariant);
    EXPECT_THROW(comm->reduce_scatter(floats(four), floats(six), soon()), BrokenInvariant);
    EXPECT_THROW(comm->all_reduce({bytes.data(), 4, DType::kU8, {}}, soon()), BrokenInvariant);
    EXPECT_THROW(comm->send(floats(four), comm->index(), 0, soon()), BrokenInvariant);
    EXPECT_THROW(comm->recv(floats(four), 2, 0, soon()), BrokenInvariant);
    EXPECT_THROW(comm->broadcast(floats(four), 2, soon()), BrokenInvariant);
    const std::int64_t counts[] = {1, 2};
    EXPECT_THROW(comm->all_to_all(floats(four), counts, floats(four), counts, soon()),
                 BrokenInvariant);
  });
}

TEST(Communicator, GroupsAreConnectedByMembersOnly) {
  run_local(2, [](World& world) {
    if (world.rank() == Rank{1}) {
      EXPECT_THROW(world.connect("other", "tp", {Rank{0}}, soon()), BrokenInvariant);
    }
    EXPECT_THROW(world.connect("beyond", "tp", {world.rank(), Rank{2}}, soon()), BrokenInvariant);
  });
}

TEST(Communicator, DescribesItself) {
  run_local(1, [](World& world) {
    EXPECT_EQ(world.connect("dp@tp0", "dp", {Rank{0}}, soon())->describe(),
              "local group dp@tp0, member 0 of 1");
  });
}

// A destructor that waited would hang where the peer has given up as well.
TEST(Communicator, AWorkThatIsDroppedAbortsAndDoesNotWait) {
  LocalWorld world(2);
  const auto own = world.join(Rank{0}), other = world.join(Rank{1});
  auto comm = own->connect("g", "tp", {Rank{0}, Rank{1}}, soon());
  auto healthy = own->connect("h", "dp", {Rank{0}, Rank{1}}, soon());
  std::vector<float> data(8, 1.0f);
  {
    const Work dropped = comm->all_reduce(floats(data), Deadline::never());
  }
  EXPECT_TRUE(comm->is_poisoned());
  EXPECT_FALSE(healthy->is_poisoned()) << "nothing has failed";
}

// The first failure of any communicator ends waits on all of them, and names its cause everywhere.
TEST(Communicator, AFailureEndsAllCommunicatorsOfTheRank) {
  LocalWorld world(3);
  const auto own = world.join(Rank{0});
  auto one = own->connect("one", "dp", {Rank{0}, Rank{1}}, soon());
  auto two = own->connect("two", "pp", {Rank{0}, Rank{2}}, soon());
  std::vector<float> data(8);
  Work healthy = two->recv(floats(data), 1, 0, Deadline::never());
  world.mark_lost(Rank{1}, "ended with an error");
  EXPECT_THROW(one->barrier(Deadline::never()).wait(), CommError);
  try {
    healthy.wait();
    ADD_FAILURE() << "waits in a healthy group";
  } catch (const CommError& error) {
    EXPECT_EQ(error.culprit(), Rank{1});
    EXPECT_NE(error.error().message.find("rank 1 ended with an error"), std::string::npos);
  }
  auto late = own->connect("late", "tp", {Rank{0}, Rank{2}}, soon());
  EXPECT_THROW(late->barrier(Deadline::never()), CommError);
}

TEST(Ledger, KeepsAxesAndOperationsApart) {
  Ledger ledger;
  ledger.count("tp", OpKind::kAllGather, Bytes{10});
  ledger.count("tp", OpKind::kAllGather, Bytes{5});
  ledger.count("dp", OpKind::kAllGather, Bytes{1});
  EXPECT_EQ(ledger.entry("tp", OpKind::kAllGather), (Ledger::Entry{2, Bytes{15}}));
  EXPECT_EQ(ledger.entry("dp", OpKind::kSend), (Ledger::Entry{0, Bytes{0}}));
  EXPECT_EQ(ledger.entries().size(), 2u);
  ledger.clear();
  EXPECT_TRUE(ledger.entries().empty());
}

TEST(Measure, MembersAgreeAndTheLedgerSaysWhatWasSent) {
  run_local(4, [](World& world) {
    auto comm = world.connect("g", "bench", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}, soon());
    const auto results =
        measure(*comm, world.ledger(), {OpKind::kAllGather, OpKind::kAllReduce, OpKind::kSend},
                {Bytes{4096}}, Seconds{0.001}, soon());
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[0].sent.value, 3072);
    EXPECT_EQ(results[1].sent.value, 6144);
    EXPECT_EQ(results[2].sent.value, world.rank().value < 2 ? 4096 : 0);
    for (const Measurement& m : results) EXPECT_GE(m.repetitions, 5);
  });
}

}  // namespace
}  // namespace lockstep::comm
