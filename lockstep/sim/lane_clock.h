// Virtual time, and lanes on which work goes on. A lane does one piece of work at a time; its
// factor says how much longer than alone the work takes now, and may change while it is under way.
// Work at factor 1 throughout ends exactly at its start plus its length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "lockstep/base/units.h"

namespace lockstep::sim {

// Belongs to one thread.
class LaneClock {
 public:
  explicit LaneClock(std::size_t lanes) : lanes_(lanes) {}

  Seconds now() const { return now_; }
  bool is_busy(int lane) const { return at(lane).is_busy; }
  Seconds start_of(int lane) const { return at(lane).start; }

  // Begins work on an idle lane; it goes on once the lane has a factor.
  void begin(int lane, Seconds work);
  // An idle lane is busy until then, whatever its factor.
  void hold(int lane, Seconds end);
  // From now on. Nothing changes on an idle lane, or where the factor is so already.
  // REQUIRES: factor > 0.
  void set_factor(int lane, double factor);

  // Moves on to the next end of work; false when none is left. REQUIRES: every busy lane has a
  // factor.
  bool advance();
  // A lane whose work ends now, by number, idle from here on; none when all have been named.
  std::optional<int> take_ended();

 private:
  struct Lane {
    bool is_busy = false;
    bool is_held = false;
    double factor = 0;  // 0: none yet
    Seconds start;
    Seconds since;  // when the factor was set
    Seconds left;   // work, then
    std::uint32_t version = 0;
  };
  // Out of date when the lane has another version.
  struct End {
    Seconds time;
    int lane = 0;
    std::uint32_t version = 0;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : lane > other.lane;
    }
  };

  Lane& at(int lane) { return lanes_[lane]; }
  const Lane& at(int lane) const { return lanes_[lane]; }
  void expect(int lane, Seconds end) { ends_.push({end, lane, ++at(lane).version}); }
  // Drops what is out of date; whether an end is left.
  bool find_next();

  std::vector<Lane> lanes_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  Seconds now_;
};

}  // namespace lockstep::sim
