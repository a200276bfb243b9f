// Pages, with processes of this program for ranks: what forked ones do with them.
#include "lockstep/launch/page.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <vector>

namespace lockstep::launch {
namespace {

// A rank that holds its page and does what `body` says, then waits to be killed.
class Child {
 public:
  template <class Body>
  Child(const Page& page, const Body& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::setenv(kPage, std::to_string(page.descriptor()).c_str(), 1);
    show_life();
    body();
    for (;;) ::pause();
  }
  Child(Child&&) = delete;
  ~Child() { end(); }
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void await_hold(const Page& page) {
  const Deadline deadline = Deadline::after(Seconds{20});
  while (!page.look().holds && !deadline.expired()) ::usleep(1000);
  ASSERT_TRUE(page.look().holds);
}

TEST(Page, ShowsPulsesThePlaceAndTheNamesOfOps) {
  const Page page = *Page::make();
  EXPECT_FALSE(page.look().holds);
  EXPECT_FALSE(page.look().position);
  EXPECT_EQ(page.op_text(2), "op 2");
  Child rank(page, [] {
    show_ops({"gather3", "F of unit 3", "B of unit 3"});
    static comm::PositionCell cell;
    show_position(cell);
    cell.set({14, 2, true, false, 3});
  });
  await_hold(page);
  const Deadline deadline = Deadline::after(Seconds{20});
  while (!page.look().position && !deadline.expired()) ::usleep(1000);
  const Sight sight = page.look();
  EXPECT_EQ(where_text(sight.position, page.op_text(sight.position->op)),
            "in step 15 at B of unit 3, in part 4 of it, where it waited for others");
  EXPECT_EQ(page.op_text(0), "gather3");
  EXPECT_EQ(page.op_text(3), "op 3");
  while (page.look().pulse == sight.pulse && !deadline.expired()) ::usleep(1000);
  EXPECT_GT(page.look().pulse, sight.pulse);
}

TEST(Page, TellsWhoLeavesFromWhoDies) {
  for (const bool leaves : {true, false}) {
    Page page = *Page::make();
    std::atomic<bool> died = false;
    Child rank(page, [&] {
      while (!page.look().holds) ::usleep(100);
      if (leaves) std::exit(0);
      std::abort();
    });
    const Deadline deadline = Deadline::after(Seconds{20});
    while (!page.look().holds && !deadline.expired()) ::usleep(100);
    page.watch([&] { died = true; });
    while (!died && !deadline.expired()) ::usleep(1000);
    EXPECT_TRUE(died);
    EXPECT_EQ(page.look().leaves, leaves);
  }
}

// Bytes that a rank may have written by mistake.
TEST(Page, GarbageIsReadSoundlyAndEndsNoWatch) {
  Page page = *Page::make();
  void* const at =
      ::mmap(nullptr, 1 << 18, PROT_READ | PROT_WRITE, MAP_SHARED, page.descriptor(), 0);
  ASSERT_NE(at, MAP_FAILED);
  std::fill_n(static_cast<unsigned char*>(at), 1 << 18, 0xff);
  std::atomic<bool> died = false;
  page.watch([&] { died = true; });
  for (const int op : {0, 7, 0xffffff}) EXPECT_LE(page.op_text(op).size(), 200u);
  EXPECT_FALSE(page.look().position);
  EXPECT_FALSE(died);
  ::munmap(at, 1 << 18);
}

// LOCKSTEP_DEATH_TRIALS=100 and LOCKSTEP_DEATH_MB=2048 print what docs/launch.md says.
TEST(Page, ADeathIsKnownBeforeTheMemoryIsFreed) {
  const char* const trials = std::getenv("LOCKSTEP_DEATH_TRIALS");
  const char* const size = std::getenv("LOCKSTEP_DEATH_MB");
  const std::size_t bytes = (size == nullptr ? 256 : std::strtoul(size, nullptr, 10)) << 20;
  std::vector<double> by_page, by_pidfd;
  for (long i = trials == nullptr ? 1 : std::strtol(trials, nullptr, 10); i > 0; --i) {
    Page page = *Page::make();
    Child rank(page, [&] {
      auto* const memory = static_cast<char*>(
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      for (std::size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
      static comm::PositionCell cell;
      show_position(cell);
      cell.set({});
    });
    const Deadline deadline = Deadline::after(Seconds{60});
    while (!(page.look().holds && page.look().position) && !deadline.expired()) ::usleep(1000);
    const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, rank.pid(), 0)));
    std::atomic<SteadyPoint> died = SteadyPoint();
    page.watch([&] { died = std::chrono::steady_clock::now(); });
    ::usleep(5000);
    const SteadyPoint killed = std::chrono::steady_clock::now();
    ::kill(rank.pid(), SIGKILL);
    pollfd ended = {pidfd, POLLIN, 0};
    ::poll(&ended, 1, 60000);
    const SteadyPoint told = std::chrono::steady_clock::now();
    while (died.load() == SteadyPoint() && !deadline.expired()) ::usleep(100);
    const auto ms = [&](SteadyPoint to) {
      return std::chrono::duration<double, std::milli>(to - killed).count();
    };
    by_page.push_back(ms(died));
    by_pidfd.push_back(ms(told));
  }
  for (auto* each : {&by_page, &by_pidfd}) {
    std::ranges::sort(*each);
    std::printf("%s: p50 %.2f ms, p99 %.2f ms of %zu\n", each == &by_page ? "page" : "pidfd",
                (*each)[each->size() / 2], (*each)[(each->size() * 99 - 1) / 100], each->size());
  }
  EXPECT_GT(by_page[0], 0);
}

}  // namespace
}  // namespace lockstep::launch
