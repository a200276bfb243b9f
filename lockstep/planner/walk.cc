#include "lockstep/planner/walk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/cost/analytic/layer_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/cost/analytic/stage_split.h"

namespace lockstep::planner {
namespace {

using cost::PriceRequest;
using cost::StepTime;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 - 1e-9;  // sums of the same terms in another order
constexpr double kRoundingUp = 1 + 1e-9;

// The best so far, one of each schedule, number of chunks and set of degrees, in order; where the
// degrees are given, one of each microbatch size too.
class Board {
 public:
  Board(std::size_t count, double within, bool by_microbatch)
      : count_(count), within_(within), by_microbatch_(by_microbatch) {}

  double limit() const {
    if (best_.empty()) return kInfinity;
    const double far = best_.front().hoped * within_;
    return best_.size() < count_ ? far : std::min(far, best_.back().hoped);
  }

  // Of layouts with this schedule and these degrees: the best of them may be there already.
  double limit(const PriceRequest& like) const {
    const auto same = rival_of(like);
    return same == best_.end() ? limit() : std::min(limit(), same->hoped);
  }

  void add(const Priced& found) {
    if (found.hoped > limit()) return;
    const auto same = rival_of(found.request);
    if (same != best_.end()) {
      if (!better(found, *same)) return;
      best_.erase(same);
    }
    best_.insert(std::ranges::upper_bound(best_, found, better), found);
    if (best_.size() > count_) best_.pop_back();
    while (best_.back().hoped > best_.front().hoped * within_) best_.pop_back();
  }

  std::vector<Priced> take() { return std::exchange(best_, {}); }

 private:
  std::vector<Priced>::const_iterator rival_of(const PriceRequest& a) const {
    return std::ranges::find_if(best_, [&](const Priced& one) {
      const PriceRequest& b = one.request;
      return a.schedule == b.schedule && a.chunks == b.chunks && same_degrees(a, b) &&
             (a.microbatch == b.microbatch || !by_microbatch_);
    });
  }

  std::size_t count_;
  double within_;
  bool by_microbatch_;
  std::vector<Priced> best_;
};

// Compute and exchange of all layers for a whole step, by microbatch size: no layout of the same
// core and recompute takes less.
struct Floor {
  std::int64_t b = 1;
  double forward = 0, backward = 0;       // seconds
  double again = 0;                       // besides, when every block is made again
  cost::LayerTimes kept = {}, some = {};  // where no block is made again, and where some are
};

// What was found for a timetable and a microbatch, whatever the sharding, with so many blocks made
// again or more.
struct Known {
  double seconds = 0;
  int recomputed = 0;
};

// Points that share what their layers compute and their pipeline degree. Where `drop` is not
// enough to fit, they recompute as few blocks as it takes.
struct Group {
  Core core;
  model::Drop drop;
  int pp = 1;
  double bound = kInfinity;         // least of its timetables and microbatch sizes
  std::size_t first = 0, last = 0;  // its floors
};

class Walker {
 public:
  Walker(const Lattice& lattice, std::size_t count, double within)
      : lattice_(lattice), board_(count, within, lattice.question().given.core.has_value()) {}

  // Of layouts with that schedule; of all, where it is null.
  Walk run(const pipeline::CatalogRow* only) {
    LS_CHECK(Lattice::blank(lattice_.question()).stack.fused_sums, "layouts share times of layers");
    walk_ = {};
    walk_.least_bytes = kInfinity;
    only_ = only;
    tables_.clear(), groups_.clear();
    prepare();
    for (const Group& group : groups_) {
      if (group.bound > board_.limit()) break;
      visit(group);
    }
    walk_.best = board_.take();
    return std::move(walk_);
  }

 private:
  // Floors are those of every schedule.
  void prepare() {
    std::size_t floor = 0;
    for (const Core& core : lattice_.cores()) {
      const std::vector<int> pipelines = lattice_.pipelines(core);
      if (pipelines.empty()) continue;
      for (const model::Drop& drop : lattice_.drops()) {
        if (drop.block) continue;
        Group group{.core = core, .drop = drop, .first = floor};
        for (const std::int64_t b : lattice_.batch_divisors())
          if (floor++ == floors_.size()) floors_.push_back(floor_of(core, drop, b));
        group.last = floor;
        for (const int pp : pipelines) add(group, pp);
      }
    }
    std::ranges::sort(groups_, {}, &Group::bound);
  }

  void add(Group group, int pp) {
    group.pp = pp;
    PriceRequest request = request_of(group);
    for (std::size_t i = group.first; i < group.last; ++i) {
      request.microbatch = floors_[i].b;
      if (!request.cuts_batch()) continue;
      for (const Timetable& table : tables_of(pp)) {
        request.schedule = table.schedule;
        request.chunks = table.chunks;
        if (lattice_.fits(table, pp, request.microbatches()))
          group.bound = std::min(group.bound, bound(request, floors_[i], 0));
      }
    }
    if (group.bound < kInfinity) groups_.push_back(group);
  }

  const std::vector<Timetable>& tables_of(int pp) {
    const auto [at, is_new] = tables_.try_emplace(pp);
    if (is_new) at->second = lattice_.timetables(pp);
    if (is_new && only_ != nullptr)
      std::erase_if(at->second, [&](const Timetable& one) { return one.schedule != only_; });
    return at->second;
  }

  PriceRequest request_of(const Group& group) const {
    PriceRequest request = lattice_.of(group.core);
    const Given& given = lattice_.question().given;
    request.drop = given.drop.value_or(group.drop), request.recomputed = given.recomputed;
    request.pp = group.pp;
    request.dp = lattice_.data(group.core, group.pp);
    return request;
  }

  // Prices as if there were no pipeline: the terms of layers are the same for every pp.
  Floor floor_of(const Core& core, const model::Drop& drop, std::int64_t b) {
    Floor floor{.b = b};
    PriceRequest request = lattice_.of(core);
    request.microbatch = b;
    request.dp = lattice_.data(core, 1);
    request.drop = drop, request.set_recomputed(1);
    floor.some = cost::layer_times(request);
    floor.kept = {.made = floor.some.others, .others = {}, .head = floor.some.head};
    slower_ = 1 + cost::spread_seconds(request, {.forward = 1});
    const cost::ModelShape& shape = *request.shape;
    const cost::LayerTime kept = mean_of(shape, floor.kept.made);
    const cost::LayerTime made = mean_of(shape, floor.some.made);
    // No whole number where the devices without a pipeline are more than the batch has sequences.
    const double m =
        static_cast<double>(request.global_batch) / (request.dp * static_cast<double>(b));
    const double all = m * shape.layers * kRounding;
    floor.forward = all * kept.forward();
    floor.backward = all * kept.backward();
    floor.again = all * (made.backward() - kept.backward());
    return floor;
  }

  void visit(const Group& group) {
    PriceRequest request = request_of(group);
    known_.assign(tables_of(group.pp).size() * (group.last - group.first), {});
    counts_.clear();
    for (std::size_t i = group.first; i < group.last; ++i) {
      request.microbatch = floors_[i].b;
      counts_.push_back(request.cuts_batch() ? request.microbatches() : 0);
    }
    for (const Sharding& sharding : lattice_.shardings(group.core, group.pp)) {
      set_sharding(lattice_.question(), sharding, request);
      if (states_fit(request)) visit(group, request, sharding);
    }
  }

  // No tokens: what is left are weights, gradients and optimizer states.
  bool states_fit(PriceRequest request) {
    request.seq = 0;
    request.schedule = Timetable{}.schedule;
    request.chunks = 1;
    request.microbatch = request.global_batch / request.dp;  // one: ZeRO-2 then shards gradients
    return fits(request);
  }

  enum class Fit : std::uint8_t { kYes, kNotInTime, kNever };

  // Makes as few blocks again as it takes to fit. Where the time that is left allows for less than
  // all, that number is tried first: most layouts end there. Nothing is chosen where it is given
  // what blocks keep.
  Fit make_fit(PriceRequest& request, int most, int allowed) {
    if (lattice_.question().given.drop) return fits(request) ? Fit::kYes : Fit::kNever;
    const bool is_all = request.stack.recompute_count == cost::RecomputeCount::kAllOrNone;
    if (allowed < most) {
      request.set_recomputed(is_all ? 0 : allowed);
      // The first rank holds most microbatches.
      if (cost::device_bytes(cost::stage_memory(request, 0)) > memory() || !fits(request))
        return Fit::kNotInTime;
    }
    const std::optional<int> least = cost::least_recomputed(request);
    request.set_recomputed(least.value_or(most));
    if (!least) fits(request);  // notes what it would take
    return least ? Fit::kYes : Fit::kNever;
  }

  // How many of `most` blocks can be made again before the bound, which is `none` without any, is
  // over the limit.
  int allowed(const PriceRequest& request, const Floor& floor, double none, int most) const {
    if (limit_ == kInfinity) return most;
    const double share = (limit_ - none) / (bound(request, floor, 1) - none);
    return static_cast<int>(std::floor(std::min(1.0, share * kRoundingUp) * most));
  }

  bool fits(const PriceRequest& request) {
    const double bytes = cost::device_bytes(cost::price_memory(request));
    if (bytes > memory()) walk_.least_bytes = std::min(walk_.least_bytes, bytes);
    return bytes <= memory();
  }
  double memory() const { return cost::room_bytes(Lattice::blank(lattice_.question())); }

  void visit(const Group& group, PriceRequest& request, const Sharding& sharding) {
    std::size_t known_at = 0;
    for (const Timetable& table : tables_of(group.pp)) {
      request.schedule = table.schedule;
      request.chunks = table.chunks;
      const int most = static_cast<int>(cost::most_layers(request));
      for (std::size_t i = group.first; i < group.last; ++i) {
        const Floor& floor = floors_[i];
        request.microbatch = floor.b;
        const std::int64_t m = counts_[i - group.first];
        if (m == 0 || !lattice_.fits(sharding, m) || !lattice_.fits(table, request.pp, m)) continue;
        limit_ = board_.limit(request);
        Known& known = known_[known_at + i - group.first];
        const double none = bound(request, floor, 0);
        if (std::max(none, known.recomputed == 0 ? known.seconds : 0) > limit_) continue;
        const Fit fit = make_fit(request, most, allowed(request, floor, none, most));
        if (fit == Fit::kNever) break;
        if (fit == Fit::kNotInTime) continue;
        for (const cost::Placement placement : lattice_.placements(group.core, request.pp)) {
          if (request.recomputed >= known.recomputed && known.seconds > limit_) break;
          request.placement = placement;
          known = {price(request, floor), request.recomputed};
        }
      }
      known_at += group.last - group.first;
    }
  }

  // Puts it on the board if it belongs there. Returns what its step takes whatever the sharding and
  // placement.
  double price(const PriceRequest& request, const Floor& floor) {
    ++walk_.times;
    const cost::LayerTimes& layers = request.drop.block ? floor.some : floor.kept;
    const StepTime time = cost::price_time(request, layers);
    const double hoped = hoped_seconds(request, time, layers);
    if (hoped <= limit_) {
      board_.add({request, cost::price(request), hoped});
      limit_ = board_.limit(request);
    }
    if (request.zero >= 3) return bound(request, floor, 0);  // its passes wait for their shards
    const double rest = time.data + time.optimizer + time.pipe + time.spread;
    return (hoped - rest) * slower_ * kRounding;
  }

  // When this share of all blocks is made again.
  double bound(const PriceRequest& request, const Floor& floor, double recomputed) const {
    const double backward = floor.backward + floor.again * recomputed;
    const double one = 1 / static_cast<double>(request.microbatches());
    const double bubble = cost::bubble_seconds(request, floor.forward * one, backward * one);
    return (floor.forward + backward + bubble) * slower_;
  }

  const Lattice& lattice_;
  const pipeline::CatalogRow* only_ = nullptr;
  Board board_;
  Walk walk_;
  std::vector<Group> groups_;
  std::vector<Floor> floors_;
  std::map<int, std::vector<Timetable>> tables_;  // by pp
  double limit_ = kInfinity;  // of the timetable: slower ones do not come on the board
  std::vector<Known> known_;  // of the group: by timetable and microbatch, what price() returned
  std::vector<std::int64_t> counts_;  // of the group: microbatches by size; 0: does not divide
  double slower_ = 1;  // the slowest of all devices over one: the same for every layout
};

}  // namespace

bool same_degrees(const PriceRequest& a, const PriceRequest& b) {
  return a.tp == b.tp && a.cp == b.cp && a.pp == b.pp && a.dp == b.dp && a.ep == b.ep &&
         a.etp == b.etp;
}

double hoped_seconds(const PriceRequest& r, const StepTime& time, const cost::LayerTimes& layers) {
  if (r.pp <= 1 || r.chunks > 1) return time.total();
  const cost::ModelShape& shape = *r.shape;
  const double recomputed = cost::recomputed_share(r);
  const cost::LayerTime layer =
      mean_of(shape, {.plain = mean_of(layers.made.plain, layers.others.plain, recomputed),
                      .routed = mean_of(layers.made.routed, layers.others.routed, recomputed)});
  const double one = layer.forward() + layer.backward(),
               head = layers.head.forward + layers.head.backward;
  double slowest = kInfinity;
  for (double last = 0; last * r.pp <= shape.layers; ++last)
    slowest = std::min(
        slowest, std::max(std::ceil((shape.layers - last) / (r.pp - 1)) * one, last * one + head));
  const auto m = static_cast<double>(r.microbatches());
  const double gain = std::max(0.0, time.passes() - m * slowest);
  return time.total() - gain * time.total() / (time.total() - time.spread);
}

bool better(const Priced& a, const Priced& b) {
  if (a.hoped != b.hoped) return a.hoped < b.hoped;
  return a.price.memory.allocated() < b.price.memory.allocated();
}

Walk walk(const Lattice& lattice, std::size_t count, double within) {
  LS_CHECK(count >= 1 && within >= 1, "a walk keeps something");
  Walk all = Walker(lattice, count, within).run(nullptr);
  all.layouts = lattice.size();
  return all;
}

std::map<const pipeline::CatalogRow*, Walk> walk_schedules(const Lattice& lattice,
                                                           std::size_t count) {
  std::map<const pipeline::CatalogRow*, Walk> walks;
  Walker walker(lattice, count, kWithin);
  for (const pipeline::CatalogRow* row : planned_schedules()) walks[row] = walker.run(row);
  return walks;
}

}  // namespace lockstep::planner
