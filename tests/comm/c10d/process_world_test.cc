#include "lockstep/comm/c10d/process_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <vector>

#include "lockstep/comm/address.h"

namespace lockstep::comm {
namespace {

// Meets and connects nobody.
class JoinedWorld : public ProcessWorld {
 public:
  using ProcessWorld::ProcessWorld;

 protected:
  std::unique_ptr<Communicator> connect_group(Membership, Deadline) override { return nullptr; }
};

// A listening socket, which is closed in the end.
struct Listener {
  int socket = listen_at("127.0.0.1", 0);
  std::uint16_t port = port_of(socket);
  ~Listener() { ::close(socket); }
};

TEST(ProcessWorld, AStoreThatNeverAnswersIsGivenUpAtTheDeadline) {
  const Listener mute;  // the kernel accepts for it
  const RealClock clock;
  try {
    const JoinedWorld world({Rank{1}, 2, "127.0.0.1", mute.port}, Deadline::after(Seconds{0.3}),
                            JoinOptions());
    ADD_FAILURE();
  } catch (const WorldError& error) {
    EXPECT_EQ(error.error().code, Code::kStoreLost);
    EXPECT_NE(error.error().message.find(
                  "rank 1 cannot reach the store at 127.0.0.1:" + std::to_string(mute.port) +
                  ": it accepts connections, but does not answer"),
              std::string::npos)
        << error.error().message;
  }
  EXPECT_LT(clock.now().since_start.value, 5);
}

TEST(ProcessWorld, IdleConnectionsKeepNobodyFromJoining) {
  const std::uint16_t port = Listener().port;
  const auto join = [port](int rank) {
    return JoinedWorld({Rank{rank}, 2, "127.0.0.1", port}, Deadline::after(Seconds{5}), {}).size();
  };
  std::future<int> first = std::async(std::launch::async, join, 0);
  std::vector<int> idle(200);
  for (int& connection : idle)
    connection = await_and_connect("127.0.0.1", port, Deadline::after(Seconds{30}));
  EXPECT_EQ(join(1), 2);
  EXPECT_EQ(first.get(), 2);
  for (const int connection : idle) ::close(connection);
}

}  // namespace
}  // namespace lockstep::comm
