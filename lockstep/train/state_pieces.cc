#include "lockstep/train/state_pieces.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"

namespace lockstep::train {
namespace {

using mesh::Axis;

constexpr std::string_view kHoldingNames[] = {"weight",          "weight",        "master weight",
                                              "first moment",    "second moment", "gradient",
                                              "selection biases"};

// Which holdings a segment has at a moment, the range of its buffer that each covers, and whether
// all ranks that add up gradients hold that, or only replicas of a shard.
struct Region {
  Holding holding;
  model::FlatRange range;
  bool is_whole;
};

class Collector {
 public:
  Collector(const Job& job, const runtime::TensorWorkspace& workspace, const runtime::Place& place,
            Moment moment)
      : job_(job), workspace_(workspace), place_(place), moment_(moment) {}

  void add(int segment) {
    for (const Region& region : regions(segment))
      for (const model::FlatParam& param : workspace_.layout(segment).params) {
        const model::FlatRange part = common(region.range, {param.offset, param.end()});
        if (part.size() == 0 || is_shared(segment, region, param)) continue;
        StatePiece piece = {.segment = segment,
                            .holding = region.holding,
                            .param = param.param,
                            .range = part,
                            .at = part.begin - start_of(segment, region)};
        set_holders(region, param, piece);
        if (region.holding == Holding::kGradient && piece.copies == 1) continue;
        made.push_back(piece);
      }
  }

  std::vector<StatePiece> made;

 private:
  int zero() const { return job_.program.step.zero; }
  model::FlatRange own(int segment) const { return workspace_.own_range(segment); }
  std::int64_t start_of(int segment, const Region& region) const {
    return region.holding == Holding::kWeight && zero() < 3 ? 0 : own(segment).begin;
  }

  std::vector<Region> regions(int segment) const {
    const bool is_sharded = zero() > 0, gathers = zero() == 1 || zero() == 2;
    const model::FlatRange whole = {0, workspace_.layout(segment).size};
    std::vector<Region> found;
    // Between Update and the gather at the start of the next step the rest of a buffer is of the
    // step before.
    if (gathers && moment_ != Moment::kAtNorm)
      found.push_back({Holding::kOwnWeight, own(segment), false});
    else
      found.push_back({Holding::kWeight, zero() == 3 ? own(segment) : whole, zero() < 3});
    if (gathers && moment_ == Moment::kAtNorm)
      found.push_back({Holding::kOwnWeight, own(segment), false});
    if (wide_type(job_.workspace.unit.dtype) != job_.workspace.unit.dtype)
      found.push_back({Holding::kMaster, own(segment), !is_sharded});
    found.push_back({Holding::kFirstMoment, own(segment), !is_sharded});
    found.push_back({Holding::kSecondMoment, own(segment), !is_sharded});
    if (moment_ == Moment::kAtNorm)
      found.push_back({Holding::kGradient, own(segment), !is_sharded});
    return found;
  }

  // The state of a weight whose two ends are on this rank is the embedding's.
  bool is_shared(int segment, const Region& region, const model::FlatParam& param) const {
    const model::FlatLayout& flat = workspace_.layout(segment);
    return flat.tied_copy && job_.program.step.shares_state() && param.end() <= flat.tied.end &&
           region.holding != Holding::kWeight && region.holding != Holding::kOwnWeight &&
           region.holding != Holding::kGradient;
  }

  void set_holders(const Region& region, const model::FlatParam& param, StatePiece& piece) const {
    const bool is_experts = job_.model.is_experts(piece.segment);
    const runtime::Share share = workspace_.share(piece.segment);
    piece.copies = job_.mesh.degree(is_experts ? Axis::kExpertDataReplicate : Axis::kDataReplicate);
    piece.is_first = share.replica == 0;
    if (region.is_whole) {
      piece.copies *= share.shards;
      piece.is_first = share.index() == 0;
    }
    const model::TensorPlace& place = place_.tensor;
    if (is_experts) {
      piece.part = place.expert_coord * place.etp + place.coord % place.etp;
      return;
    }
    const model::FlatLayout& flat = workspace_.layout(piece.segment);
    const auto lies_in = [&](const model::FlatRange& range) {
      return range.begin <= param.offset && param.end() <= range.end;
    };
    std::int64_t alike = 1;
    if (lies_in(flat.replicated)) alike = place.tp;
    if (std::ranges::any_of(flat.copied, lies_in)) alike = flat.copies;
    piece.copies *= alike;
    piece.is_first = piece.is_first && place.coord % alike == 0;
    piece.part = place.coord / alike;
  }

  const Job& job_;
  const runtime::TensorWorkspace& workspace_;
  const runtime::Place& place_;
  const Moment moment_;
};

// Of pieces, in the order of hashing: one fits into a core's cache.
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
struct Chunk {
  std::size_t piece;
  ByteSpan bytes;
};

}  // namespace

std::string_view to_text(Holding holding) {
  return kHoldingNames[static_cast<std::size_t>(holding)];
}

std::uint64_t StatePiece::key() const {
  const std::int64_t words[] = {
      segment, static_cast<std::int64_t>(holding), param, part, range.begin, range.end};
  return xxh3_64(std::as_bytes(std::span(words)));
}

std::vector<StatePiece> state_pieces(const Job& job, const runtime::TensorWorkspace& workspace,
                                     const runtime::Place& place, Rank rank, Moment moment) {
  Collector collector(job, workspace, place, moment);
  job.program.step.for_each_segment(place.coord, [&](int segment) { collector.add(segment); });
  if (const std::int64_t experts = std::ssize(workspace.router_bias()); experts > 0)
    collector.made.push_back({.holding = Holding::kRouterBias,
                              .range = {0, experts},
                              .copies = job.mesh.world(),
                              .is_first = rank.value == 0});
  return std::move(collector.made);
}

at::Tensor tensor_of(const runtime::TensorWorkspace& workspace, int segment, Holding holding) {
  using runtime::StateRole;
  switch (holding) {
    case Holding::kWeight:
      return workspace.computed_with(segment);
    case Holding::kOwnWeight:
      return workspace.working(segment);
    case Holding::kMaster:
      return workspace.state(segment, StateRole::kParameter);
    case Holding::kFirstMoment:
      return workspace.state(segment, StateRole::kFirstMoment);
    case Holding::kSecondMoment:
      return workspace.state(segment, StateRole::kSecondMoment);
    case Holding::kGradient:
      return workspace.reduced_grad(segment);
    case Holding::kRouterBias:
      return workspace.bias_state();
  }
  return {};
}

std::vector<std::uint64_t> digests_of(const runtime::TensorWorkspace& workspace,
                                      std::span<const StatePiece> pieces) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const StatePiece& piece = pieces[i];
    const at::Tensor tensor = tensor_of(workspace, piece.segment, piece.holding);
    LS_CHECK(tensor.is_cpu() && tensor.is_contiguous() &&
                 piece.at + piece.range.size() <= tensor.numel(),
             "a piece outside of its tensor");
    const auto width = static_cast<std::int64_t>(tensor.element_size());
    const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    for (std::int64_t at = piece.at * width, end = at + piece.range.size() * width; at < end;
         at += kChunkBytes)
      chunks.push_back(
          {i, {begin + at, static_cast<std::size_t>(std::min(kChunkBytes, end - at))}});
  }
  std::vector<std::uint64_t> hashes(chunks.size()), digests(pieces.size());
  at::parallel_for(0, std::ssize(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      hashes[i] = xxh3_64(chunks[i].bytes);
  });
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    std::uint64_t& digest = digests[chunks[i].piece];
    const std::uint64_t words[] = {digest, hashes[i]};
    digest = xxh3_64(std::as_bytes(std::span(words)));
  }
  return digests;
}

std::string name_of(const Job& job, const StatePiece& piece) {
  if (piece.holding == Holding::kRouterBias) return std::string(to_text(piece.holding));
  const model::Param& param = job.model.unit(piece.segment).params[piece.param];
  return join_parts(
      to_text(piece.holding), " of ",
      model::name_at(param.name, model::Model::layer(job.model.unit_of(piece.segment))));
}

}  // namespace lockstep::train
