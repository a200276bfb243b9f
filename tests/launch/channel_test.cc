#include "lockstep/launch/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace lockstep::launch {
namespace {

std::array<Descriptor, 2> connected() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Both ends as they would run side by side: each looks, in turn.
struct Pair {
  explicit Pair(const std::string& listens = "secret", const std::string& connects = "secret")
      : Pair(connected(), listens, connects) {}
  Pair(std::array<Descriptor, 2> ends, const std::string& listens, const std::string& connects)
      : listener(std::move(ends[0]), Channel::End::kListened, listens),
        connector(std::move(ends[1]), Channel::End::kConnected, connects) {}

  Channel listener, connector;
};

Json number(int value) { return Json::object({{"value", value}}); }

// The raw other end of a channel, as whoever has no secret sees it.
struct Wire {
  Descriptor fd;
  std::string read() const {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT);
    return text.substr(0, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  void write(const std::string& text) const {
    (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
};

TEST(Channel, MessagesArriveInOrderBothWaysFromTheFirstOn) {
  Pair pair;
  for (int i = 0; i < 100; ++i) pair.connector.send(number(i));
  EXPECT_FALSE(pair.connector.receive());  // takes the other's number, and sends what was kept
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pair.listener.receive(), number(i));
  pair.listener.send(number(7));
  EXPECT_EQ(pair.connector.receive(), number(7));
  EXPECT_FALSE(pair.connector.receive());
  EXPECT_TRUE(pair.connector.is_open() && pair.listener.is_open());
}

TEST(Channel, AnotherSecretIsNotListenedTo) {
  Pair pair("secret", "another");
  pair.connector.send(number(1));
  EXPECT_FALSE(pair.connector.receive());
  EXPECT_FALSE(pair.listener.receive());
  EXPECT_FALSE(pair.listener.is_open());
  EXPECT_EQ(pair.listener.why_closed(), "has another secret");
  EXPECT_FALSE(pair.connector.receive());
  EXPECT_FALSE(pair.connector.is_open() || pair.connector.is_trusted());
}

TEST(Channel, WhatIsRepeatedChangedLeftOutOrReflectedEndsIt) {
  for (const std::string what : {"repeated", "changed", "left out", "reflected", "earlier"}) {
    auto [a, b] = connected();
    auto [c, d] = connected();
    Channel listener(std::move(a), Channel::End::kListened, "secret");
    Channel connector(std::move(d), Channel::End::kConnected, "secret");
    Wire to_listener{std::move(b)}, to_connector{std::move(c)};
    connector.send(number(1));
    connector.send(number(2));
    to_connector.write(to_listener.read());  // the listener's greeting
    EXPECT_FALSE(connector.receive());
    const std::string said = to_connector.read();
    const std::size_t first = said.find('\n') + 1, second = said.find('\n', first) + 1;
    const std::string greeting = said.substr(0, first), one = said.substr(first, second - first),
                      two = said.substr(second);
    to_listener.write(greeting);
    if (what != "left out") to_listener.write(one);
    std::string last = what == "repeated" ? one : two;
    if (what == "changed") last[last.size() - 3] = '3';
    if (what == "reflected") {
      to_listener.read();
      EXPECT_EQ(listener.receive(), number(1));
      listener.send(number(4));
      listener.send(number(5));  // as many came before it as before what is expected
      last = to_listener.read();
      last.erase(0, last.find('\n') + 1);
    }
    if (what == "earlier") {  // of a connection before this one
      auto [e, f] = connected();
      Channel before(std::move(e), Channel::End::kConnected, "secret");
      Wire wire{std::move(f)};
      before.send(number(1));
      wire.write("lockstep.launch/1 0123456789abcdef0123456789abcdef\n");
      EXPECT_FALSE(before.receive());
      const std::string all = wire.read();
      last = all.substr(all.find('\n') + 1);
    }
    to_listener.write(last);
    if (what != "left out" && what != "reflected") {
      EXPECT_EQ(listener.receive(), number(1)) << what;
    }
    EXPECT_FALSE(listener.receive()) << what;
    EXPECT_FALSE(listener.is_open()) << what;
  }
}

TEST(Channel, GarbageEndsItAndTakesNoMemory) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\n"), std::string(1 << 16, 'x'),
        std::string("lockstep.launch/1 \n"),
        std::string("lockstep.launch/2 ") + std::string(32, '0') + "\n",
        "lockstep.launch/1 " + std::string(32, '0') + "\n" + std::string(200, '{') + "\n"}) {
    auto [a, b] = connected();
    Channel listener(std::move(a), Channel::End::kListened, "secret");
    Wire wire{std::move(b)};
    wire.write(garbage);
    EXPECT_FALSE(listener.receive());
    EXPECT_FALSE(listener.is_open()) << garbage.substr(0, 40);
  }
}

// Whoever goes is heard to the end.
TEST(Channel, TheLastMessagesOfWhoLeavesArrive) {
  Pair pair;
  EXPECT_FALSE(pair.listener.receive());
  EXPECT_FALSE(pair.connector.receive());
  pair.connector.send(number(1));
  pair.connector.send(number(2));
  pair.connector.close("is done");
  EXPECT_EQ(pair.listener.receive(), number(1));
  pair.listener.send(number(3));  // to nobody
  EXPECT_EQ(pair.listener.receive(), number(2));
  EXPECT_FALSE(pair.listener.receive());
  EXPECT_FALSE(pair.listener.is_open());
  EXPECT_EQ(pair.listener.why_closed(), "closed its connection");
}

TEST(Channel, WhoTakesNothingIsCutOff) {
  Pair pair;
  EXPECT_FALSE(pair.listener.receive());
  EXPECT_FALSE(pair.connector.receive());
  const Json message = Json::object({{"text", std::string(4000, 'x')}});
  int sent = 0;
  while (pair.listener.is_open() && sent < 10000) pair.listener.send(message), ++sent;
  EXPECT_FALSE(pair.listener.is_open());
  EXPECT_EQ(pair.listener.why_closed(), "does not take what it is sent");
}

}  // namespace
}  // namespace lockstep::launch
