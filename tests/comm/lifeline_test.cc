#include "lockstep/comm/lifeline.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "lockstep/comm/address.h"

namespace lockstep::comm {
namespace {

Deadline soon() { return Deadline::after(Seconds{10}); }

// Who was reported lost, for a thread that waits for it.
class Losses {
 public:
  Lifeline::Lost note() {
    return [this](Rank rank) {
      const std::lock_guard lock(mutex_);
      lost_.push_back(rank);
      changed_.notify_all();
    };
  }
  std::optional<Rank> first() {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, soon().point(), [&] { return !lost_.empty(); });
    return lost_.empty() ? std::nullopt : std::optional(lost_.front());
  }
  std::vector<Rank> all() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> lost_;
};

// What a process that dies leaves: a connection that ends without a goodbye.
int raw(std::uint16_t port, std::uint64_t secret, std::int64_t rank) {
  const int fd = connect_to("127.0.0.1", port, soon());
  const std::uint64_t words[] = {secret, static_cast<std::uint64_t>(rank)};
  EXPECT_EQ(::send(fd, words, sizeof words, 0), static_cast<ssize_t>(sizeof words));
  return fd;
}

TEST(Lifeline, ADeathIsToldAndAGoodbyeIsNot) {
  Losses losses, of_three;
  auto first = std::make_unique<Lifeline>("127.0.0.1", 77, 4, losses.note());
  auto three =
      std::make_unique<Lifeline>("127.0.0.1", first->port(), 77, Rank{3}, soon(), of_three.note());
  {
    const Lifeline one("127.0.0.1", first->port(), 77, Rank{1}, soon(), {});
  }
  ::close(raw(first->port(), 77, 2));
  EXPECT_EQ(losses.first(), Rank{2});
  EXPECT_EQ(losses.all().size(), 1u);
  first.reset();  // says goodbye to rank 3
  three.reset();
  EXPECT_TRUE(of_three.all().empty());
}

// Whoever waits for what that rank would have done must hear of it.
TEST(Lifeline, AnEndByAnErrorIsToldLikeADeath) {
  Losses losses;
  const Lifeline first("127.0.0.1", 77, 2, losses.note());
  try {
    const Lifeline one("127.0.0.1", first.port(), 77, Rank{1}, soon(), {});
    throw std::runtime_error("disk full");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(losses.first(), Rank{1});
}

TEST(Lifeline, TheDeathOfRankZeroIsToldToo) {
  const int listener = listen_at("127.0.0.1", 0);
  Losses losses;
  const Lifeline one("127.0.0.1", port_of(listener), 77, Rank{1}, soon(), losses.note());
  ::close(::accept(listener, nullptr, nullptr));
  EXPECT_EQ(losses.first(), Rank{0});
  ::close(listener);
}

// Whoever does not know the secret, is no rank or comes a second time, can come and go unheard, in
// any number, and keeps nobody out.
TEST(Lifeline, StrangersDoNotMatter) {
  Losses losses;
  const Lifeline first("127.0.0.1", 77, 3, losses.note());
  const int genuine = raw(first.port(), 77, 1);
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_to("127.0.0.1", first.port(), soon()));
  for (const auto& [secret, rank] : {std::pair(78, 2), {77, 0}, {77, 3}, {77, -1}, {77, 1}})
    ::close(raw(first.port(), static_cast<std::uint64_t>(secret), rank));
  const int garbage = connect_to("127.0.0.1", first.port(), soon());
  EXPECT_GT(::send(garbage, "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  ::close(garbage);
  ::close(raw(first.port(), 77, 2));
  EXPECT_EQ(losses.first(), Rank{2});
  EXPECT_EQ(losses.all().size(), 1u);
  for (const int fd : strangers) ::close(fd);
  ::close(genuine);
}

}  // namespace
}  // namespace lockstep::comm
