#include "lockstep/comm/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

TEST(Address, RoutesAndListensWhereItSays) {
  EXPECT_EQ(route_to("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(route_to("localhost").substr(0, 4) == "127." || route_to("localhost") == "::1", true);
  const int listener = listen_at("127.0.0.1", 0);
  EXPECT_EQ(address_of(listener), "127.0.0.1");
  EXPECT_THROW(listen_at("127.0.0.1", port_of(listener)), WorldError) << "it is taken";
  ::close(listener);
  EXPECT_THROW(route_to("no-such-host.invalid"), WorldError);
}

TEST(Address, ConnectingKeepsItsDeadlineAndStops) {
  const int listener = listen_at("127.0.0.1", 0);
  const std::uint16_t port = port_of(listener);
  ::close(listener);
  const RealClock clock;
  EXPECT_THROW(connect_to("127.0.0.1", port, Deadline::never()), WorldError) << "it was refused";
  EXPECT_THROW(await_and_connect("127.0.0.1", port, Deadline::after(Seconds{0.2})), WorldError);
  const std::atomic<bool> stop = true;
  try {
    await_and_connect("127.0.0.1", port, Deadline::never(), &stop);
    ADD_FAILURE();
  } catch (const WorldError& error) {
    EXPECT_EQ(error.error().code, Code::kInterrupted);
  }
  EXPECT_LT(clock.now().since_start.value, 5);
}

TEST(Address, AClosedConnectionIsSeen) {
  const int listener = listen_at("127.0.0.1", 0);
  const int connection = connect_to("127.0.0.1", port_of(listener), Deadline::never());
  EXPECT_FALSE(is_closed(connection));
  ::close(listener);  // with the connection still in its queue
  EXPECT_TRUE(is_closed(connection));
  ::close(connection);
}

}  // namespace
}  // namespace lockstep::comm
