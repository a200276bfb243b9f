// Where the ranks of a job stand, for a report when they stop: the step a rank is in, the op of its
// list that it has come to, and the part of that. What the numbers mean is the affair of whoever
// writes them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <tuple>

#include "lockstep/base/check.h"

namespace lockstep::comm {

struct Position {
  std::int32_t step = 0;
  std::int32_t op = 0;     // one past the last: the step is done, the next not begun
  bool waits = false;      // has done its own share of the op or part, and waits for others
  bool evaluates = false;  // in the evaluation behind the step, which has a list of its own
  std::int32_t part = 0;   // of an op that meets others inside: how many parts are behind it
  bool operator==(const Position&) const = default;
  auto operator<=>(const Position& other) const {
    return std::tie(step, evaluates, op, part, waits) <=>
           std::tie(other.step, other.evaluates, other.op, other.part, other.waits);
  }
};

// One rank's own; it writes, any thread may read.
class PositionCell {
 public:
  // REQUIRES: no number is negative; step below 2^26, op below 2^24. Parts from 2^12 - 1 on are
  // told as that.
  void set(Position at) {
    LS_CHECK(at.step >> 26 == 0 && at.op >> 24 == 0, "no room for step ", at.step, ", op ", at.op);
    const auto part = static_cast<std::uint64_t>(std::min(at.part, kMaxPart));
    const std::uint64_t word = static_cast<std::uint64_t>(at.step) << 38 |
                               static_cast<std::uint64_t>(at.op) << 14 | part << 2 |
                               static_cast<std::uint64_t>(at.evaluates) << 1 |
                               static_cast<std::uint64_t>(at.waits);
    word_.store(word, std::memory_order_relaxed);
    if (shown_ != nullptr) shown_->store(word, std::memory_order_relaxed);
  }
  // Nothing before the first set.
  std::optional<Position> get() const { return decode(word_.load(std::memory_order_relaxed)); }

  // From now on `word`, which must outlive the cell's use, holds every position too. Before any
  // other thread knows the cell.
  void show_in(std::atomic<std::uint64_t>& word) { shown_ = &word; }
  // Shows there alone that the rank has done a step, or an evaluation, and is at what comes between
  // steps: a save, say.
  void rest() {
    if (shown_ == nullptr) return;
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    if (word != kUnset)
      shown_->store((word >> 38) << 38 | static_cast<std::uint64_t>(kBetween) << 14,
                    std::memory_order_relaxed);
  }
  static std::optional<Position> decode(std::uint64_t word) {
    if (word == kUnset) return std::nullopt;
    return Position{static_cast<std::int32_t>(word >> 38),
                    static_cast<std::int32_t>(word >> 14 & 0xffffff), (word & 1) != 0,
                    (word & 2) != 0, static_cast<std::int32_t>(word >> 2) & kMaxPart};
  }

  static constexpr std::uint64_t kUnset = ~std::uint64_t{0};
  static constexpr std::int32_t kBetween = 0xffffff;  // the op of one that rests

 private:
  static constexpr std::int32_t kMaxPart = 0xfff;
  std::atomic<std::uint64_t> word_ = kUnset;
  std::atomic<std::uint64_t>* shown_ = nullptr;  // not owned
};

// What is known of a rank from outside.
struct LastSeen {
  std::optional<Position> position = {};
  bool is_silent = false;  // shows no sign of life
};

}  // namespace lockstep::comm
