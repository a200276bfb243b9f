#include "lockstep/planner/seek.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <ranges>
#include <utility>

#include "lockstep/planner/explain.h"

namespace lockstep::planner {
namespace {

constexpr std::size_t kWalked = 160;  // schedules and sets of degrees
constexpr std::size_t kShown = 64;
// A simulation is so much faster than the closed form at most, or so rarely more that it is not
// sought.
constexpr double kGain = 1.08;
constexpr double kNear = 1.01;
constexpr double kEnough = 1 + 1e-9;  // of the bytes that are needed

bool has_degrees(const std::vector<Finalist>& list, const cost::PriceRequest& request) {
  return std::ranges::any_of(
      list, [&](const Finalist& one) { return same_degrees(one.priced.request, request); });
}

class Seeker {
 public:
  explicit Seeker(const Question& question) : question_(question) {}

  // Every schedule by itself, so that none has a better answer alone; then around the best of all.
  Sought run() {
    const Lattice lattice(question_);
    std::vector<Finalist> all;
    for (const auto& [row, walked] : walk_schedules(lattice, kWalked)) {
      priced_ += walked.times;
      least_bytes_ = std::min(least_bytes_, walked.least_bytes);
      time(walked.best);
      Question one = question_;
      if (is_asked(row)) one.schedules = {row};  // else these are layouts without a pipeline
      if (!pool_.empty()) look_around(one);
      std::ranges::move(pool_, std::back_inserter(all));
      pool_.clear();
    }
    pool_ = std::move(all);
    if (!pool_.empty()) look_around(question_);
    return {one_of_each(), lattice.size(), priced_, simulated_, least_bytes_};
  }

 private:
  bool is_asked(const pipeline::CatalogRow* row) const {
    return question_.schedules.empty() ||
           std::ranges::find(question_.schedules, row) != question_.schedules.end();
  }

  void add(Finalist timed) {
    simulated_ += timed.simulated ? 1 : 0;
    if (timed.priced.price.fits) return pool_.push_back(std::move(timed));
    least_bytes_ = std::min(least_bytes_, cost::device_bytes(timed.priced.price.memory));
  }

  // All of a set of degrees that is new, for the table; others only where they may be the fastest
  // of their schedule.
  void time(const std::vector<Priced>& walked) {
    std::map<const pipeline::CatalogRow*, double> least;
    for (const Priced& one : walked) {
      const auto known = least.find(one.request.schedule);
      if (has_degrees(pool_, one.request) && known != least.end() &&
          one.hoped > known->second * kGain)
        continue;
      const Finalist timed = simulate(one, given_stages(question_, one.request));
      add(timed);
      if (!timed.priced.price.fits) continue;
      double& seconds = least.try_emplace(one.request.schedule, timed.seconds).first->second;
      seconds = std::min(seconds, timed.seconds);
    }
  }

  // Around the one that is chosen, and the fastest of every schedule that is near to it.
  void look_around(const Question& question) {
    std::vector<double> seen;
    for (std::size_t before = 1; before != seen.size();) {
      before = seen.size();
      rank(pool_);
      std::vector<Finalist> next = {pool_.front()};
      for (const pipeline::CatalogRow* row : planned_schedules()) {
        const auto is_such = [&](const Finalist& one) {
          return one.priced.request.schedule == row;
        };
        auto same = pool_ | std::views::filter(is_such);
        const auto fastest = std::ranges::min_element(same, {}, &Finalist::seconds);
        if (fastest != same.end() && fastest->seconds < next.front().seconds * kNear)
          next.push_back(*fastest);
      }
      for (const Finalist& one : next) {
        if (std::ranges::find(seen, one.seconds) != seen.end()) continue;
        seen.push_back(one.seconds);
        for (const Alternative& other : neighbours(question, one))
          if (other.found) add(*other.found);
      }
    }
  }

  std::vector<Finalist> one_of_each() {
    std::vector<Finalist> found;
    for (Finalist& one : pool_)
      if (found.size() < kShown && !has_degrees(found, one.priced.request))
        found.push_back(std::move(one));
    return found;
  }

  const Question& question_;
  std::vector<Finalist> pool_;  // that fit
  std::int64_t priced_ = 0, simulated_ = 0;
  double least_bytes_ = std::numeric_limits<double>::infinity();  // of those that do not fit
};

}  // namespace

Sought seek(const Question& question) { return Seeker(question).run(); }

double least_seconds(const Question& question) {
  const Walk walked = walk(Lattice(question), 1, 1);
  return walked.best.empty() ? std::numeric_limits<double>::infinity()
                             : walked.best.front().hoped / kGain;
}

std::optional<Finalist> seek_one(const Question& question) {
  const double capacity = cost::capacity_bytes(question.cluster->device);
  Question asked = question;
  for (double least = 0; std::isfinite(least);) {
    Sought found = seek(asked);
    if (!found.best.empty()) return found.best.front();
    least = found.least_bytes;
    asked.headroom = 1 - least * kEnough / capacity;
  }
  return std::nullopt;
}

}  // namespace lockstep::planner
