#include "lockstep/search/walk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/cost/layer_time.h"
#include "lockstep/cost/stage_memory.h"
#include "lockstep/cost/stage_split.h"

namespace lockstep::search {
namespace {

using cost::PriceRequest;
using cost::StepTime;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 - 1e-9;  // sums of the same terms in another order
constexpr double kRoundingUp = 1 + 1e-9;

bool same_degrees(const PriceRequest& a, const PriceRequest& b) {
  return a.tp == b.tp && a.cp == b.cp && a.pp == b.pp && a.dp == b.dp && a.ep == b.ep &&
         a.etp == b.etp;
}

// The best so far, one of each set of degrees, in order.
class Board {
 public:
  Board(std::size_t count, double within) : count_(count), within_(within) {}

  double limit() const {
    if (best_.empty()) return kInfinity;
    const double far = best_.front().seconds() * within_;
    return best_.size() < count_ ? far : std::min(far, best_.back().seconds());
  }

  // Of layouts with these degrees: the best of them may be there already.
  double limit(const PriceRequest& degrees) const {
    const auto same = std::ranges::find_if(
        best_, [&](const Priced& one) { return same_degrees(one.request, degrees); });
    return same == best_.end() ? limit() : std::min(limit(), same->seconds());
  }

  void add(const Priced& found) {
    if (found.seconds() > limit()) return;
    const auto same = std::ranges::find_if(
        best_, [&](const Priced& one) { return same_degrees(one.request, found.request); });
    if (same != best_.end()) {
      if (!better(found, *same)) return;
      best_.erase(same);
    }
    best_.insert(std::ranges::upper_bound(best_, found, better), found);
    if (best_.size() > count_) best_.pop_back();
    while (best_.back().seconds() > best_.front().seconds() * within_) best_.pop_back();
  }

  std::vector<Priced> take() { return std::move(best_); }

 private:
  std::size_t count_;
  double within_;
  std::vector<Priced> best_;
};

// Compute and exchange of all layers for a whole step, by microbatch size: no layout of the same core and
// recompute takes less.
struct Floor {
  double b = 1;
  double forward = 0;  // seconds
  double rest = 0;
  double again = 0;                       // besides, when every block is made again
  cost::LayerTimes kept = {}, some = {};  // where no block is made again, and where some are
};

// What was found for a timetable and a microbatch, whatever the sharding, with so many blocks made again or more.
struct Known {
  double seconds = 0, remade = 0;
};

// Points that share what their layers compute and their pipeline degree. Where `keep` does not fit, they make as few
// blocks again as it takes.
struct Group {
  Core core;
  cost::Keep keep = cost::Keep::kAll;
  double pp = 1;
  double bound = kInfinity;         // least of its timetables and microbatch sizes
  std::size_t first = 0, last = 0;  // its floors
};

class Walker {
 public:
  Walker(const Lattice& lattice, std::size_t count, double within)
      : lattice_(lattice), board_(count, within) {}

  Walk run() {
    LS_CHECK(Lattice::blank(lattice_.question()).stack.fused_sums, "layouts share times of layers");
    walk_.least_bytes = kInfinity;
    prepare();
    for (const Group& group : groups_) {
      if (group.bound > board_.limit()) break;
      visit(group);
    }
    walk_.best = board_.take();
    walk_.layouts = lattice_.size();
    return std::move(walk_);
  }

 private:
  void prepare() {
    for (const Core& core : lattice_.cores()) {
      const std::vector<double> pipelines = lattice_.pipelines(core);
      if (pipelines.empty()) continue;
      for (const cost::Keep keep : lattice_.keeps()) {
        if (keep == cost::Keep::kInput) continue;
        Group group{.core = core, .keep = keep, .first = floors_.size()};
        for (const double b : lattice_.batch_divisors()) floors_.push_back(floor_of(core, keep, b));
        group.last = floors_.size();
        for (const double pp : pipelines) add(group, pp);
      }
    }
    std::ranges::sort(groups_, {}, &Group::bound);
  }

  void add(Group group, double pp) {
    group.pp = pp;
    PriceRequest request = request_of(group);
    for (const Timetable& table : tables_of(pp)) {
      request.pipe = table.pipe;
      request.chunks = table.chunks;
      for (std::size_t i = group.first; i < group.last; ++i) {
        request.microbatch = floors_[i].b;
        const double m = request.microbatches();
        if (m >= 1 && m == std::floor(m) && Lattice::fits(table, pp, m))
          group.bound = std::min(group.bound, bound(request, floors_[i], 0));
      }
    }
    if (group.bound < kInfinity) groups_.push_back(group);
  }

  const std::vector<Timetable>& tables_of(double pp) {
    const auto [at, is_new] = tables_.try_emplace(pp);
    if (is_new) at->second = lattice_.timetables(pp);
    return at->second;
  }

  PriceRequest request_of(const Group& group) const {
    PriceRequest request = lattice_.of(group.core);
    request.keep = request.others = group.keep;
    request.pp = group.pp;
    request.dp = lattice_.data(group.core, group.pp);
    return request;
  }

  // Prices as if there were no pipeline: the terms of layers are the same for every pp.
  Floor floor_of(const Core& core, cost::Keep keep, double b) {
    Floor floor{.b = b};
    PriceRequest request = lattice_.of(core);
    request.microbatch = b;
    request.dp = lattice_.data(core, 1);
    request.keep = cost::Keep::kInput, request.others = keep, request.remade = 1;
    floor.some = cost::layer_times(request);
    floor.kept = {.made = floor.some.others, .others = {}, .head = floor.some.head};
    request.remade = 0;
    const double again = rest_of(cost::price_time(request, floor.some));
    request.keep = keep;
    const StepTime time = cost::price_time(request, floor.kept);
    const double whole = time.total() - time.spread;
    slower_ = whole > 0 ? 1 + time.spread / whole : 1;
    floor.forward = time.forward * kRounding;
    floor.rest = rest_of(time);
    floor.again = (again - floor.rest) * kRounding;
    return floor;
  }

  static double rest_of(const StepTime& time) {
    return (time.backward + time.recompute + time.tensor + time.context + time.expert) * kRounding;
  }

  void visit(const Group& group) {
    PriceRequest request = request_of(group);
    limit_ = board_.limit(request);
    if (group.bound > limit_) return;
    known_.assign(tables_of(group.pp).size() * (group.last - group.first), {});
    for (const Sharding& sharding : lattice_.shardings(group.core, group.pp)) {
      request.zero = sharding.zero;
      request.dp_shard = sharding.group;
      if (states_fit(request)) visit(group, request, sharding);
    }
  }

  // No tokens: what is left are weights, gradients and optimizer states.
  bool states_fit(PriceRequest request) {
    request.seq = 0;
    request.pipe = cost::Pipe::k1f1b;
    request.chunks = 1;
    request.microbatch = request.global_batch / request.dp;  // one: ZeRO-2 then shards gradients
    return fits(request);
  }

  enum class Fit : std::uint8_t { kYes, kNotInTime, kNever };

  // Makes as few blocks again as it takes to fit. Where the time that is left allows for less than all, that number is
  // tried first: most layouts end there.
  Fit make_fit(PriceRequest& request, double most, double allowed) {
    if (allowed < most) {
      request.remake(allowed);
      // The first rank holds most microbatches.
      if (cost::device_bytes(cost::stage_memory(request, 0)) > memory() || !fits(request))
        return Fit::kNotInTime;
    }
    ++walk_.memories;
    const std::optional<double> least = cost::least_remade(request);
    request.remake(least.value_or(most));
    if (!least) fits(request);  // notes what it would take
    return least ? Fit::kYes : Fit::kNever;
  }

  // How many of `most` blocks can be made again before the bound, which is `none` without any, is over the limit.
  double allowed(const PriceRequest& request, const Floor& floor, double none, double most) const {
    if (limit_ == kInfinity) return most;
    const double share = (limit_ - none) / (bound(request, floor, 1) - none);
    return std::floor(std::min(1.0, share * kRoundingUp) * most);
  }

  bool fits(const PriceRequest& request) {
    ++walk_.memories;
    const double bytes = cost::device_bytes(cost::price_memory(request));
    if (bytes > memory()) walk_.least_bytes = std::min(walk_.least_bytes, bytes);
    return bytes <= memory();
  }
  double memory() const { return cost::capacity_bytes(lattice_.question().cluster->device); }

  void visit(const Group& group, PriceRequest& request, const Sharding& sharding) {
    std::size_t known_at = 0;
    for (const Timetable& table : tables_of(group.pp)) {
      request.pipe = table.pipe;
      request.chunks = table.chunks;
      const double most = cost::most_layers(request);
      for (std::size_t i = group.first; i < group.last; ++i) {
        const Floor& floor = floors_[i];
        request.microbatch = floor.b;
        const double m = request.microbatches();
        if (m < 1) break;
        if (m != std::floor(m) || !Lattice::fits(sharding, m) ||
            !Lattice::fits(table, request.pp, m))
          continue;
        Known& known = known_[known_at + i - group.first];
        const double none = bound(request, floor, 0);
        if (std::max(none, known.remade == 0 ? known.seconds : 0) > limit_) continue;
        const Fit fit = make_fit(request, most, allowed(request, floor, none, most));
        if (fit == Fit::kNever) break;
        if (fit == Fit::kNotInTime) continue;
        for (const cost::Placement placement : lattice_.placements(group.core, request.pp)) {
          if (request.remade >= known.remade && known.seconds > limit_) break;
          request.placement = placement;
          known = {price(request, floor), request.remade};
        }
      }
      known_at += group.last - group.first;
    }
  }

  // Puts it on the board if it belongs there. Returns what its step takes whatever the sharding and placement.
  double price(const PriceRequest& request, const Floor& floor) {
    ++walk_.times;
    const StepTime time = cost::price_time(request, request.remade > 0 ? floor.some : floor.kept);
    if (time.total() <= limit_) {
      board_.add({request, cost::price(request)});
      limit_ = board_.limit(request);
    }
    const double rest = time.data + time.optimizer + time.pipe + time.spread;
    return (time.total() - rest) * slower_ * kRounding;
  }

  // When this share of all blocks is made again.
  double bound(const PriceRequest& request, const Floor& floor, double remade) const {
    const double rest = floor.rest + floor.again * remade;
    const double one = 1 / (request.microbatches() * request.pp);
    const double bubble =
        request.pp > 1 ? cost::bubble_seconds(request, floor.forward * one, rest * one) : 0;
    return (floor.forward + rest + bubble) * slower_;
  }

  const Lattice& lattice_;
  Board board_;
  Walk walk_;
  std::vector<Group> groups_;
  std::vector<Floor> floors_;
  std::map<double, std::vector<Timetable>> tables_;  // by pp
  double limit_ = kInfinity;  // of the group: slower ones do not come on the board
  std::vector<Known> known_;  // of the group: by timetable and microbatch, what price() returned
  double slower_ = 1;         // the slowest of all devices over one: the same for every layout
};

}  // namespace

bool better(const Priced& a, const Priced& b) {
  if (a.seconds() != b.seconds()) return a.seconds() < b.seconds();
  return a.price.memory.allocated() < b.price.memory.allocated();
}

Walk walk(const Lattice& lattice, std::size_t count, double within) {
  LS_CHECK(count >= 1 && within >= 1, "a walk keeps something");
  return Walker(lattice, count, within).run();
}

}  // namespace lockstep::search
