#include "lockstep/search/stage_layers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lockstep/cost/stage_memory.h"
#include "lockstep/schedule/balance.h"
#include "lockstep/schedule/lower.h"

namespace lockstep::search {
namespace {

using cost::Memory;
using cost::PriceRequest;

constexpr double kCanNot = std::numeric_limits<double>::infinity();
constexpr double kSame = 1 + 1e-9;  // sums of the same terms in another order

// Ranks of a pipeline with one stage each, by how many layers they hold.
class Ranks {
 public:
  Ranks(const PriceRequest& request, const PassTimes& times)
      : request_(request), times_(times), shape_(*request.shape) {
    request_.shape = &shape_;
    known_.resize(static_cast<std::size_t>(ranks() * (layers() + 1)));
  }

  int ranks() const { return count_of(request_.pp); }
  int layers() const { return layers_; }

  double seconds(int rank, int layers) const {
    return layers * times_.layer() + (rank == ranks() - 1 ? times_.head() : 0);
  }

  // A model of so many layers on every rank has them on this one.
  const Memory& memory(int rank, int layers) {
    std::optional<Memory>& known = known_[static_cast<std::size_t>(rank * (layers_ + 1) + layers)];
    if (!known) {
      shape_.layers = layers * request_.pp;
      known = cost::stage_memory(request_, rank);
    }
    return *known;
  }
  double bytes(int rank, int layers) { return cost::device_bytes(memory(rank, layers)); }

  // The slowest rank of a split, or the one that holds most.
  double slowest(std::span<const int> split) const {
    double most = 0;
    for (int rank = 0; rank < ranks(); ++rank)
      most = std::max(most, seconds(rank, split[static_cast<std::size_t>(rank)]));
    return most;
  }
  const Memory& fullest(std::span<const int> split) {
    const Memory* most = &memory(0, split[0]);
    for (int rank = 1; rank < ranks(); ++rank) {
      const Memory& other = memory(rank, split[static_cast<std::size_t>(rank)]);
      if (cost::device_bytes(other) > cost::device_bytes(*most)) most = &other;
    }
    return *most;
  }

 private:
  PriceRequest request_;
  const PassTimes& times_;
  cost::ModelShape shape_;
  const int layers_ = count_of(shape_.layers);
  std::vector<std::optional<Memory>> known_;  // by rank and layers
};

StageLayers counts(std::span<const std::int32_t> begin) {
  StageLayers split;
  for (std::size_t i = 0; i + 1 < begin.size(); ++i) split.push_back(begin[i + 1] - begin[i]);
  return split;
}

StageLayers balanced(const PriceRequest& request, const PassTimes& times) {
  Ranks ranks(request, times);
  StageLayers dealt = dealt_layers(ranks.layers(), ranks.ranks());
  const double room = cost::capacity_bytes(request.cluster->device);
  const auto fastest =
      schedule::balance_units(ranks.layers(), ranks.ranks(), [&](int rank, int begin, int end) {
        return ranks.bytes(rank, end - begin) <= room ? ranks.seconds(rank, end - begin) : kCanNot;
      });
  if (!fastest) return dealt;
  const double slowest = ranks.slowest(counts(*fastest)) * kSame;
  if (ranks.slowest(dealt) <= slowest && cost::device_bytes(ranks.fullest(dealt)) <= room)
    return dealt;
  // Of all that are as fast, the one whose fullest rank holds least.
  const auto least =
      schedule::balance_units(ranks.layers(), ranks.ranks(), [&](int rank, int begin, int end) {
        return ranks.seconds(rank, end - begin) <= slowest ? ranks.bytes(rank, end - begin)
                                                           : kCanNot;
      });
  return counts(least.value_or(*fastest));
}

// Even but for a layer less at either end.
StageLayers priced(int layers, int stages) {
  const int most = (layers + stages - 1) / stages;
  StageLayers found(static_cast<std::size_t>(stages), most);
  int extra = most * stages - layers;
  if (extra > 0) --found.back(), --extra;
  if (extra > 0) --found.front(), --extra;
  for (std::size_t i = found.size() - 2; extra > 0 && i > 0; --i, --extra) --found[i];
  return found;
}

}  // namespace

StageLayers dealt_layers(int layers, int stages) {
  StageLayers split = counts(schedule::split_units(layers + 2, stages));
  --split.front();  // the embedding
  --split.back();   // the head
  return split;
}

StageLayers best_layers(const PriceRequest& request, const PassTimes& times) {
  const int layers = count_of(request.shape->layers);
  if (request.chunks > 1) return priced(layers, count_of(request.pp * request.chunks));
  return request.pp > 1 ? balanced(request, times) : StageLayers{layers};
}

Memory fullest_rank(const PriceRequest& request, std::span<const int> split) {
  const PassTimes none;
  return Ranks(request, none).fullest(split);
}

}  // namespace lockstep::search
