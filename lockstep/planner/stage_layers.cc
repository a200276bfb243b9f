#include "lockstep/planner/stage_layers.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lockstep/cost/analytic/layer_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/pipeline/balance.h"
#include "lockstep/pipeline/layer_split.h"

namespace lockstep::planner {
namespace {

using cost::Memory;
using cost::PriceRequest;

constexpr double kCanNot = std::numeric_limits<double>::infinity();
constexpr double kSame = 1 + 1e-9;  // sums of the same terms in another order

// Where every rank has so many layers, this one has.
cost::StageSplit even_split(double layers) { return {layers, layers, layers}; }

Memory memory_of(PriceRequest request, int rank, int layers, int recomputed) {
  if (request.drop.block) request.set_recomputed(recomputed);
  return cost::stage_memory(request, even_split(layers), rank);
}

// Ranks of a pipeline with one stage each, by how many layers they hold.
class Ranks {
 public:
  Ranks(const PriceRequest& request, const PassTimes& times) : request_(request), times_(times) {
    known_.resize(static_cast<std::size_t>(ranks() * (layers() + 1)));
  }

  int ranks() const { return request_.pp; }
  int layers() const { return layers_; }

  double seconds(int rank, int layers) {
    return times_.stage(layers, at(rank, layers).recomputed, rank == ranks() - 1);
  }
  double bytes(int rank, int layers) { return at(rank, layers).bytes; }

  // The slowest rank of a split, or the one that needs most.
  double slowest(std::span<const int> split) {
    return most(split, [&](int rank, int layers) { return seconds(rank, layers); });
  }
  double fullest(std::span<const int> split) {
    return most(split, [&](int rank, int layers) { return bytes(rank, layers); });
  }

  Stages with(StageLayers split) {
    Stages made{std::move(split), {}};
    for (int rank = 0; rank < ranks(); ++rank)
      made.recomputed.push_back(at(rank, made.layers[static_cast<std::size_t>(rank)]).recomputed);
    return made;
  }

 private:
  struct Rank {
    double bytes = 0;
    int recomputed = 0;
  };

  const Rank& at(int rank, int layers) {
    std::optional<Rank>& known = known_[static_cast<std::size_t>(rank * (layers_ + 1) + layers)];
    if (!known) {
      const int recomputed = recomputed_on(rank, layers);
      known = {cost::device_bytes(memory_of(request_, rank, layers, recomputed)), recomputed};
    }
    return *known;
  }

  int recomputed_on(int rank, int layers) const {
    if (!request_.drop.block) return 0;
    if (request_.recomputed == 0) return layers;
    return cost::least_recomputed(request_, even_split(layers), rank).value_or(layers);
  }

  template <class Value>
  double most(std::span<const int> split, const Value& value) const {
    double found = 0;
    for (int rank = 0; rank < ranks(); ++rank)
      found = std::max(found, value(rank, split[static_cast<std::size_t>(rank)]));
    return found;
  }

  const PriceRequest& request_;
  const PassTimes& times_;
  const int layers_ = request_.shape->layers;
  std::vector<std::optional<Rank>> known_;  // by rank and layers
};

StageLayers counts(std::span<const std::int32_t> begin) {
  StageLayers split;
  for (std::size_t i = 0; i + 1 < begin.size(); ++i) split.push_back(begin[i + 1] - begin[i]);
  return split;
}

Stages balanced(const PriceRequest& request, const PassTimes& times) {
  Ranks ranks(request, times);
  StageLayers dealt = default_layer_split(request);
  const double room = cost::room_bytes(request);
  const auto fastest =
      pipeline::balance_units(ranks.layers(), ranks.ranks(), [&](int rank, int begin, int end) {
        return ranks.bytes(rank, end - begin) <= room ? ranks.seconds(rank, end - begin) : kCanNot;
      });
  if (!fastest) return ranks.with(std::move(dealt));
  const double slowest = ranks.slowest(counts(*fastest)) * kSame;
  if (ranks.slowest(dealt) <= slowest && ranks.fullest(dealt) <= room)
    return ranks.with(std::move(dealt));
  // Of all that are as fast, the one whose fullest rank holds least.
  const auto least =
      pipeline::balance_units(ranks.layers(), ranks.ranks(), [&](int rank, int begin, int end) {
        return ranks.seconds(rank, end - begin) <= slowest ? ranks.bytes(rank, end - begin)
                                                           : kCanNot;
      });
  return ranks.with(counts(least.value_or(*fastest)));
}

int rank_of(const PriceRequest& request, std::size_t stage) {
  return pipeline::coord_of(request.schedule->placement, Stage{static_cast<int>(stage)}, request.pp)
      .value;
}

}  // namespace

PassTimes pass_times(const cost::PriceRequest& request) {
  cost::PriceRequest r = request;
  r.recomputed = r.drop.block ? 1 : 0;  // so that others are priced too
  const cost::LayerTimes times = cost::layer_times(r);
  const cost::LayerTime made = mean_of(*r.shape, times.made);
  const cost::LayerTime kept = r.drop.block ? mean_of(*r.shape, times.others) : made;
  PassTimes found;
  found.forward = kept.forward();
  found.backward = kept.backward();
  found.again = made.forward() + made.backward() - found.layer();
  found.head_forward = times.head.forward;
  found.head_backward = times.head.backward;
  found.hop = cost::hop_seconds(request);
  return found;
}

PassTimes sharded_pass_times(const cost::PriceRequest& request) {
  PassTimes found = pass_times(request);
  const cost::PassPair kept = cost::sharded_layer(request, {found.forward, found.backward});
  const cost::PassPair made =
      cost::sharded_layer(request, {found.forward, found.backward + found.again});
  found.forward = kept.forward, found.backward = kept.backward;
  found.again = made.backward - kept.backward;
  return found;
}

StageLayers default_layer_split(const PriceRequest& r) {
  return pipeline::default_layer_split(r.shape->layers, r.pp * r.chunks);
}

Stages best_stages(const PriceRequest& request, const PassTimes& times) {
  if (request.pp <= 1 || request.chunks > 1)
    return as_counted(request.stack, evenly_recomputed(request, default_layer_split(request)));
  if (request.stack.even_stages)
    return as_counted(request.stack, Ranks(request, times).with(default_layer_split(request)));
  return as_counted(request.stack, balanced(request, times));
}

Stages as_counted(const cost::Stack& stack, Stages stages) {
  if (stack.recompute_count == cost::RecomputeCount::kEachStage) return stages;
  int most = std::ranges::max(stages.recomputed);
  if (most > 0 && stack.recompute_count == cost::RecomputeCount::kAllOrNone)
    most = std::ranges::max(stages.layers);
  for (std::size_t i = 0; i < stages.layers.size(); ++i)
    stages.recomputed[i] = std::min(most, stages.layers[i]);
  return stages;
}

Stages evenly_recomputed(const PriceRequest& request, StageLayers layers) {
  StageLayers recomputed(layers.size(), 0);
  if (!request.drop.block) return {std::move(layers), std::move(recomputed)};
  if (request.recomputed == 0) return {layers, layers};
  for (int rank = 0; rank < request.pp; ++rank) {
    int left = request.recomputed;
    for (bool is_dealt = true; left > 0 && is_dealt;) {
      is_dealt = false;
      for (std::size_t stage = 0; stage < layers.size() && left > 0; ++stage)
        if (rank_of(request, stage) == rank && recomputed[stage] < layers[stage])
          ++recomputed[stage], --left, is_dealt = true;
    }
  }
  return {std::move(layers), std::move(recomputed)};
}

Stages stages_of(const PriceRequest& request, const StageLayers& layers,
                 const StageLayers& recomputed) {
  Stages made = evenly_recomputed(request, layers.empty() ? default_layer_split(request) : layers);
  if (!recomputed.empty()) made.recomputed = recomputed;
  return made;
}

int most_recomputed(const PriceRequest& request, const StageLayers& recomputed) {
  StageLayers ranks(static_cast<std::size_t>(request.pp), 0);
  for (std::size_t stage = 0; stage < recomputed.size(); ++stage)
    ranks[static_cast<std::size_t>(rank_of(request, stage))] += recomputed[stage];
  return std::ranges::max(ranks);
}

spec::Recompute recompute_of(const PriceRequest& request, const Stages& stages) {
  return spec::with_blocks(request.drop.rest(), stages.layers, stages.recomputed);
}

Memory rank_memory(const PriceRequest& request, const Stages& stages, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return memory_of(request, rank, stages.layers[at], stages.recomputed[at]);
}

Memory fullest_rank(const PriceRequest& request, const Stages& stages) {
  Memory most = rank_memory(request, stages, 0);
  for (int rank = 1; rank < request.pp; ++rank)
    if (const Memory other = rank_memory(request, stages, rank);
        cost::device_bytes(other) > cost::device_bytes(most))
      most = other;
  return most;
}

}  // namespace lockstep::planner
