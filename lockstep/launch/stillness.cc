#include "lockstep/launch/stillness.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::launch {
namespace {

double seconds_between(SteadyPoint from, SteadyPoint to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string tenths(double seconds) { return strf("%.1f s", seconds); }

}  // namespace

double Stillness::Span::lasted(SteadyPoint now) const {
  return since ? std::max(0.0, seconds_between(*since, now) - credit) : 0;
}

double Stillness::Span::limit() const {
  return std::max(kLeastLimit.value, kLongerThanSeen * longest);
}

void Stillness::Span::end(SteadyPoint now) {
  longest = std::max(longest, lasted(now));
  since.reset();
  credit = 0;
}

std::optional<std::string> Stillness::look(const Sight& sight, Run run, SteadyPoint now,
                                           Seconds late) {
  const double rank_late = std::max(0.0, sight.late.value - rank_late_);
  rank_late_ = std::max(rank_late_, sight.late.value);
  for (Span* const span : {&stopped_, &silent_, &place_})
    if (span->since) span->credit += late.value;
  place_.credit += rank_late;
  if (run != Run::kStopped) {
    stopped_ = {};
  } else if (!stopped_.since) {
    stopped_.since = now;
  } else if (stopped_.lasted(now) > kLeastLimit.value) {
    return "was stopped for " + tenths(stopped_.lasted(now));
  }
  if (run != Run::kRuns || !sight.holds) {  // then pulse and place stand for that reason
    silent_.since.reset();
    place_.since.reset();
    silent_.credit = place_.credit = 0;
    position_.reset();
    return std::nullopt;
  }
  if (sight.pulse != pulse_ || !silent_.since) {
    silent_.end(now);
    silent_.since = now;
    pulse_ = sight.pulse;
  } else if (silent_.lasted(now) > silent_.limit()) {
    return "showed no sign of life for " + tenths(silent_.lasted(now));
  }
  return look_at_place(sight, now);
}

// Only of steps behind the first one seen: there is nothing to compare that with, and much in it is
// done once. Who waits is held up by another; what lies between steps, a save to a slow disk for
// example, has no limit here.
std::optional<std::string> Stillness::look_at_place(const Sight& sight, SteadyPoint now) {
  const auto& at = sight.position;
  if (at && !first_step_) first_step_ = at->step;
  has_stepped_ = at && (at->step > *first_step_ || at->op == comm::PositionCell::kBetween);
  const bool counts = is_busy(sight);
  if (at != position_ || !counts) {
    if (place_.since) place_.end(now);
    place_.credit = 0;
    position_ = at;
    if (!counts) return std::nullopt;
    place_.since = now;
  }
  if (at->step == *first_step_ || place_.lasted(now) <= place_.limit()) return std::nullopt;
  return join_parts("stood still for ", tenths(place_.lasted(now)), ", at most ",
                    tenths(place_.longest), " before");
}

bool is_busy(const Sight& sight) {
  const auto& at = sight.position;
  return at && !at->waits && !at->evaluates && at->op != comm::PositionCell::kBetween;
}

std::optional<Slowness::Slow> Slowness::look(const std::vector<bool>& busy) {
  if (busy_.size() < 3) return std::nullopt;
  for (std::size_t rank = 0; rank < busy_.size(); ++rank) busy_[rank] += busy[rank] ? 1 : 0;
  if (++looks_ < kLooks) return std::nullopt;
  std::vector<int> sorted = busy_;
  std::ranges::sort(sorted);
  const double median = std::max(1, sorted[sorted.size() / 2]);
  std::optional<Slow> slow;
  for (std::size_t rank = 0; rank < busy_.size(); ++rank) {
    const double ratio = busy_[rank] / median;
    const bool is_slow = ratio >= kLeastRatio && busy_[rank] > kLooks / 4;
    in_a_row_[rank] = is_slow ? in_a_row_[rank] + 1 : 0;
    if (in_a_row_[rank] == kRounds && (!slow || ratio > slow->ratio))
      slow = {static_cast<int>(rank), ratio};
  }
  std::ranges::fill(busy_, 0);
  looks_ = 0;
  return slow;
}

}  // namespace lockstep::launch
