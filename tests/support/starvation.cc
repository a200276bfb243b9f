#include "tests/support/starvation.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

using std::chrono::steady_clock;

constexpr auto kNap = std::chrono::milliseconds(10);

// What a hypervisor has taken from each processor since the machine began; 0 where nobody says.
Seconds stolen() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  std::int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0,
               steal = 0;
  if (!(file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal))
    return Seconds{0};
  return Seconds{static_cast<double>(steal) / static_cast<double>(sysconf(_SC_CLK_TCK)) /
                 std::max(1U, std::thread::hardware_concurrency())};
}

// Naps for as long as the process lives and remembers the ones that took far too long.
class Napper {
 public:
  Napper() : thread_([this](const std::stop_token& stop) { nap(stop); }) {}

  Seconds worst_since(SteadyPoint begin) const {
    const std::lock_guard lock(mutex_);
    Seconds worst{0};
    for (const auto& [woken, late] : late_)
      if (woken >= begin) worst = std::max(worst, late);
    return worst;
  }

 private:
  void nap(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const SteadyPoint due = steady_clock::now() + kNap;
      std::this_thread::sleep_until(due);
      const SteadyPoint woken = steady_clock::now();
      const Seconds late{std::chrono::duration<double>(woken - due).count()};
      if (late < Seconds{0.05}) continue;
      const std::lock_guard lock(mutex_);
      late_.emplace_back(woken, late);
    }
  }

  mutable std::mutex mutex_;
  std::deque<std::pair<SteadyPoint, Seconds>> late_;
  std::jthread thread_;  // last, so that it has the others
};

}  // namespace

std::string wrong_unless_starved(int tries, Seconds lost,
                                 const std::function<std::string(int)>& attempt) {
  static const Napper napper;
  for (int i = 0;; ++i) {
    const SteadyPoint begin = steady_clock::now();
    const Seconds stolen_before = stolen();
    const std::string wrong = attempt(i);
    if (wrong.empty() || i + 1 == tries) return wrong;
    const Seconds withheld = std::max(napper.worst_since(begin), stolen() - stolen_before);
    if (withheld < lost) return wrong;
    std::cout << "starved of " + std::to_string(withheld.value) + " s, so tried again: " + wrong +
                     "\n";
  }
}

}  // namespace lockstep
