// Memory that a rank shares with the launcher that started it: that it lives, and where it stands.
// A thread of the rank holds a robust mutex in it, so that the launcher learns of a death before
// the kernel has freed the rank's memory, which takes 65 ms for each GB; the end of a process
// itself is told only behind that.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/result.h"
#include "lockstep/comm/position.h"

namespace lockstep::launch {

inline constexpr const char* kPage = "LOCKSTEP_PAGE";  // the descriptor, for a rank
inline constexpr Seconds kBetweenPulses = {0.05};

struct SharedPage;  // as it lies in memory

// The rank's side, to be called once and first of all: from here on a thread shows that the process
// lives. Where no launcher gave it a page nothing happens, also below.
void show_life();
// Where `show_ops` and the place are seen: sets that cell up to be shown.
void show_position(comm::PositionCell& cell);
// What the ops of a step are called, by their numbers. Those that there is no room for are numbers.
void show_ops(const std::vector<std::string>& texts);

// What a launcher sees in a page. Whatever a rank wrote there, reading it is sound.
struct Sight {
  bool holds = false;   // the thread of the rank has begun
  bool leaves = false;  // it ends by itself
  SteadyPoint pulse;    // its last
  Seconds late;         // how much later than it should its pulses came, in all
  std::optional<comm::Position> position = {};
};

// The launcher's side. Movable.
class Page {
 public:
  static Result<Page> make();

  int descriptor() const { return memory_; }  // for the rank
  Sight look() const;
  std::string op_text(int op) const;  // "B of unit 3, microbatch 1", else "op 17"

  // Calls `died` on a thread of its own when the process that holds the mutex has ended, however
  // that came. To be asked for when look().holds.
  void watch(std::function<void()> died);
  bool is_watched() const { return watch_ != nullptr; }

 private:
  class DeathWatch;
  struct Unmap {
    void operator()(SharedPage* page) const;
  };
  Page() = default;

  Descriptor memory_;
  std::unique_ptr<SharedPage, Unmap> page_;
  std::shared_ptr<DeathWatch> watch_;  // behind what it reads
};

// "in step 15 at B of unit 3, microbatch 1, behind 2 parts of it, waiting for others".
std::string where_text(const std::optional<comm::Position>& position, const std::string& op_text);

}  // namespace lockstep::launch
