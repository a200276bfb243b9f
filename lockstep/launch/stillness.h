// When a rank stands still for too long: stopped, without a sign of life, or at one place of a step
// while it waits for nobody. Pure functions of what was seen and when; they know no process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/launch/page.h"

namespace lockstep::launch {

// A duration that may last so long: the longer of 2 s and five times the longest of its kind that
// came to an end by itself.
inline constexpr Seconds kLeastLimit = {2};
inline constexpr double kLongerThanSeen = 5;

enum class Run : std::uint8_t { kRuns, kStopped, kTraced };  // by a signal; by a debugger

class Stillness {
 public:
  // What one look saw. `late`: how much later than planned the look comes, which is nobody's fault
  // but the launcher's, or the machine's: no duration here counts it. What a rank's own pulses were
  // late is not counted either.
  // Returns what is wrong, once it is: "was stopped for 2.1 s", "showed no sign of life for 2.3 s",
  // "stood still for 4.2 s, at most 0.3 s before".
  std::optional<std::string> look(const Sight& sight, Run run, SteadyPoint now, Seconds late);
  bool has_stepped() const { return has_stepped_; }  // is behind the first step that was seen

 private:
  // How long something has lasted, with what is to be credited taken off.
  struct Span {
    std::optional<SteadyPoint> since = {};
    double credit = 0, longest = 0;  // s
    double lasted(SteadyPoint now) const;
    double limit() const;
    void end(SteadyPoint now);
  };
  std::optional<std::string> look_at_place(const Sight& sight, SteadyPoint now);

  Span stopped_, silent_, place_;
  std::optional<comm::Position> position_;
  std::optional<std::int32_t> first_step_;  // that was seen: in it all is new
  bool has_stepped_ = false;
  SteadyPoint pulse_ = {};
  double rank_late_ = 0;
};

// Computes, and waits for nobody.
bool is_busy(const Sight& sight);

// Which rank computes longer than others, told from looks at all of them: the share of looks at
// which it waited for nobody in a step, over that of the median rank.
class Slowness {
 public:
  explicit Slowness(int ranks) : busy_(ranks), in_a_row_(ranks) {}

  struct Slow {
    int rank = 0;
    double ratio = 1;
  };
  // After a look at all ranks; `busy` by rank. Told once for a rank, after so many rounds of so
  // many looks in a row. Never with fewer than three ranks: which of two is slow is unknown.
  std::optional<Slow> look(const std::vector<bool>& busy);

  static constexpr int kLooks = 200, kRounds = 3;
  static constexpr double kLeastRatio = 1.5;

 private:
  std::vector<int> busy_, in_a_row_;
  int looks_ = 0;
};

}  // namespace lockstep::launch
