#include "lockstep/comm/c10d/store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/address.h"
#include "lockstep/comm/c10d/meeting.h"

namespace lockstep::comm {
namespace {

constexpr double kSoon = 10;  // seconds; the deadlines below are 60

Deadline later() { return Deadline::after(Seconds{60}); }

TEST(Store, AHostThatIsGoneIsNotWaitedFor) {
  auto host = Store::host("127.0.0.1", 0);
  const auto other = Store::connect("127.0.0.1", host->port(), later());
  EXPECT_TRUE(other->connect_again(later()));
  host.reset();
  const RealClock clock;
  EXPECT_THROW(other->connect_again(later()), std::exception);
  EXPECT_LT(clock.now().since_start.value, kSoon);
}

TEST(Store, AHostThatGoesAwayBeforeItAnswersIsNotWaitedFor) {
  const int listener = comm::listen_at("127.0.0.1", 0);
  const std::uint16_t port = comm::port_of(listener);
  std::thread leaves([listener] {
    ::close(::accept(listener, nullptr, nullptr));
    ::close(listener);
  });
  const RealClock clock;
  EXPECT_THROW(Store::connect("127.0.0.1", port, later()), std::exception);
  EXPECT_LT(clock.now().since_start.value, kSoon);
  leaves.join();
}

// Another address of the same interface stands for all that are not loopback.
TEST(Store, ListensAtItsOwnAddressAlone) {
  const auto host = Store::host("127.0.0.1", 0);
  EXPECT_TRUE(Store::connect("127.0.0.1", host->port(), later()));
  EXPECT_THROW(::close(comm::connect_to("127.0.0.2", host->port(), later())), WorldError);
}

// Between the two nobody would notice its death.
TEST(Meeting, ARankThatArrivedAndCameNoFurtherIsMissing) {
  const std::shared_ptr<Store> store = Store::host("127.0.0.1", 0);
  const comm::Rendezvous first{Rank{0}, 2, "127.0.0.1", store->port()},
      second{Rank{1}, 2, "127.0.0.1", store->port()};
  const JoinOptions options;
  const auto nothing = [] {};
  Meeting(store, second, later(), options, nothing).arrive("127.0.0.1");
  Meeting meeting(store, first, Deadline::after(Seconds{0.1}), options, nothing);
  meeting.arrive("127.0.0.1");
  try {
    meeting.conclude();
    ADD_FAILURE();
  } catch (const WorldError& error) {
    EXPECT_EQ(error.error().code, Code::kStoreLost);
    EXPECT_NE(error.error().message.find("1 of 2 ranks: 1"), std::string::npos)
        << error.error().message;
  }
}

// Rank 0 has the store: it stays until a slow rank has read why the meeting failed.
TEST(Meeting, ARefusalIsReadBeforeRankZeroEnds) {
  std::shared_ptr<Store> store = Store::host("127.0.0.1", 0);
  const comm::Rendezvous first{Rank{0}, 2, "127.0.0.1", store->port()},
      second{Rank{1}, 2, "127.0.0.1", store->port()};
  const JoinOptions ten{.facts = {{"train.steps", "10"}}}, twenty{.facts = {{"train.steps", "20"}}};
  std::string heard;
  std::thread slow([&] {
    const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
    try {
      Meeting meeting(Store::connect("127.0.0.1", second.port, later()), second, later(), twenty,
                      wait);
      meeting.arrive("127.0.0.1");
      meeting.conclude();
    } catch (const std::exception& error) {
      heard = error.what();
    }
  });
  {
    Meeting meeting(std::move(store), first, later(), ten, [] {});
    meeting.arrive("127.0.0.1");
    EXPECT_THROW(meeting.conclude(), WorldError);
  }
  slow.join();
  EXPECT_NE(heard.find("train.steps is 20 there and 10 on rank 0"), std::string::npos) << heard;
}

}  // namespace
}  // namespace lockstep::comm
