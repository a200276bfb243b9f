// Where the ranks of a job stand, for a report when they stop: the step a rank is in and the op of
// its list that it has come to. What the numbers mean is the affair of whoever writes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <tuple>

namespace lockstep::comm {

struct Position {
  std::int32_t step = 0;
  std::int32_t op = 0;     // one past the last: the step is done, the next not begun
  bool waits = false;      // has done its own part of the op and waits for others
  bool evaluates = false;  // in the evaluation behind the step, which has a list of its own
  bool operator==(const Position&) const = default;
  auto operator<=>(const Position& other) const {
    return std::tie(step, evaluates, op, waits) <=>
           std::tie(other.step, other.evaluates, other.op, other.waits);
  }
};

// One rank's own; it writes, any thread may read.
class PositionCell {
 public:
  // REQUIRES: step and op are not negative, op below 2^30.
  void set(Position at) {
    word_.store(static_cast<std::uint64_t>(at.step) << 32 | static_cast<std::uint64_t>(at.op) << 2 |
                    static_cast<std::uint64_t>(at.evaluates) << 1 |
                    static_cast<std::uint64_t>(at.waits),
                std::memory_order_relaxed);
  }
  // Nothing before the first set.
  std::optional<Position> get() const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    if (word == kUnset) return std::nullopt;
    return Position{static_cast<std::int32_t>(word >> 32),
                    static_cast<std::int32_t>(word >> 2 & 0x3fffffff), (word & 1) != 0,
                    (word & 2) != 0};
  }

 private:
  static constexpr std::uint64_t kUnset = ~std::uint64_t{0};
  std::atomic<std::uint64_t> word_ = kUnset;
};

// What is known of a rank from outside.
struct LastSeen {
  std::optional<Position> position = {};
  bool is_silent = false;  // shows no sign of life
};

}  // namespace lockstep::comm
