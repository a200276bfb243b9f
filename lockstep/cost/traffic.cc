#include "lockstep/cost/traffic.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/arch/unit_traffic.h"
#include "lockstep/base/check.h"
#include "lockstep/base/exact_sum.h"
#include "lockstep/cost/op_passes.h"

namespace lockstep::cost {
namespace {

using mesh::Axis;
using schedule::Op;
using schedule::OpKind;
using schedule::Reach;

constexpr std::int64_t kWordBytes = 8;

comm::OpKind as_counted(arch::TensorOp op) {
  switch (op) {
    case arch::TensorOp::kAllGather:
      return comm::OpKind::kAllGather;
    case arch::TensorOp::kReduceScatter:
      return comm::OpKind::kReduceScatter;
    case arch::TensorOp::kAllReduce:
      break;
  }
  return comm::OpKind::kAllReduce;
}

// Two exact sums, the tokens that took part and the ranks that want to stop; of the first microbatch
// alone one sum and its tokens.
std::int64_t norm_words(const schedule::StepShape& step) {
  constexpr auto kSum = static_cast<std::int64_t>(ExactSum::kNumWords);
  return 2 * kSum + 2 + (step.noise ? kSum + 1 : 0);
}

struct Party {
  std::string axis;
  std::int64_t size = 1;
};

class Count {
 public:
  Count(const schedule::Program& program, const arch::Model& model, const StepSizes& sizes,
        const mesh::Mesh& mesh, Rank rank)
      : program_(program),
        step_(program.step),
        model_(model),
        sizes_(sizes),
        mesh_(mesh),
        coord_(mesh.coord(rank, Axis::kPipeline)),
        shard_(mesh.coord(rank, mesh::kDenseShard).value),
        layouts_(arch::flat_layouts(model, sizes.unit.tp)) {
    LS_CHECK(mesh.degree(Axis::kPipeline) == step_.shape.coords, "a program of ",
             step_.shape.coords, " coordinates on a mesh of ", mesh.degree(Axis::kPipeline));
    LS_CHECK(mesh.degree(mesh::kDenseShard) == sizes.shards, "sizes for ", sizes.shards,
             " shards on a mesh of ", mesh.degree(mesh::kDenseShard));
    LS_CHECK(
        mesh.degree(Axis::kTensor) == sizes.unit.tp && step_.tensor_parallel == (sizes.unit.tp > 1),
        "sizes for ", sizes.unit.tp, " tensor ranks on a mesh of ", mesh.degree(Axis::kTensor));
  }

  Traffic run() {
    for (const Op& op : program_.list(coord_)) add(op);
    return std::move(traffic_);
  }

 private:
  void add(const Op& op) {
    switch (op.kind) {
      case OpKind::kCount:
        return all_reduce(op, 1, kWordBytes);
      case OpKind::kNorm:
        return all_reduce(op, norm_words(step_), kWordBytes);
      case OpKind::kGather:
      case OpKind::kPublish:
        for (const Party& party : parties(op.reach))
          count(party, comm::OpKind::kAllGather, states(op).param_shard * (party.size - 1));
        return;
      case OpKind::kReduce:
        if (step_.zero == 0) return all_reduce(op, states(op).elements, grad_width());
        for (const Party& party : parties(op.reach))
          count(party, comm::OpKind::kReduceScatter, states(op).grad_shard * (party.size - 1));
        return;
      case OpKind::kReduceAcross:
        return all_reduce(op, states(op).owned, grad_width());
      case OpKind::kReduceReplicated:
        return reduce_part(op, op.unit, layout(op.unit).partial(sizes_.unit.sequence_parallel));
      case OpKind::kReduceTied:
        return reduce_tied(op);
      case OpKind::kSend:
        return count(pipeline(), comm::OpKind::kSend, boundary_bytes(model_.config, sizes_.unit));
      case OpKind::kPostRecv:
        return count(pipeline(), comm::OpKind::kRecv, 0);
      default:
        return add_passes(op);
    }
  }

  void add_passes(const Op& op) {
    if (sizes_.unit.tp == 1 || op.unit < 0) return;
    for (const arch::UnitPass pass : op_passes(step_, model_.unit(op.unit), op))
      for (const arch::TensorCollective& one : collectives(op.unit, pass))
        count(along(Axis::kTensor), as_counted(one.op), arch::sent(one, sizes_.unit.tp));
    const bool looks = sizes_.looks_at_noise && step_.is_noise(op) && step_.is_partial(op.unit);
    const arch::FlatRange part = layout(op.unit).partial(sizes_.unit.sequence_parallel);
    if (looks) all_reduce(along(Axis::kTensor), part.size(), grad_width());
  }

  const std::vector<arch::TensorCollective>& collectives(int unit, arch::UnitPass pass) {
    const std::pair key(model_.order[static_cast<std::size_t>(unit)], pass);
    const auto known = collectives_.find(key);
    if (known != collectives_.end()) return known->second;
    return collectives_[key] =
               pass_collectives(model_.config, model_.unit(unit), sizes_.unit, pass);
  }

  // The piece of the gradient and the shared weight begin and end alike in both units.
  void reduce_tied(const Op& op) {
    const bool both = step_.holds(coord_, 0) && step_.holds(coord_, step_.head());
    if (both) return;  // added in place
    const int unit = step_.holds(coord_, 0) ? 0 : step_.head();
    reduce_part(op, unit, layout(unit).tied);
  }

  // Those elements of the range that this rank's piece of the gradient holds.
  void reduce_part(const Op& op, int unit, const arch::FlatRange& range) {
    const bool is_whole = step_.zero == 0;
    const arch::FlatRange own =
        layout(unit).shard(is_whole ? 1 : sizes_.shards, is_whole ? 0 : shard_);
    const std::int64_t elements = common(own, range).size();
    if (elements > 0) all_reduce(op, elements, grad_width());
  }

  // Padded to a multiple of the members, as communicator.cc does.
  void all_reduce(const Op& op, std::int64_t elements, std::int64_t width) {
    for (const Party& party : parties(op.reach)) all_reduce(party, elements, width);
  }

  void all_reduce(const Party& party, std::int64_t elements, std::int64_t width) {
    const std::int64_t piece = (elements + party.size - 1) / party.size;
    count(party, comm::OpKind::kAllReduce, 2 * piece * width * (party.size - 1));
  }

  void count(const Party& party, comm::OpKind op, std::int64_t bytes) {
    comm::Ledger::Entry& entry = traffic_[{party.axis, op}];
    ++entry.calls;
    entry.sent += Bytes{bytes};
  }

  Party pipeline() const { return along(Axis::kPipeline); }
  Party along(mesh::AxisSet axes) const { return {to_text(axes), mesh_.degree(axes)}; }

  std::vector<Party> parties(Reach reach) const {
    switch (reach) {
      case Reach::kNone:
        return {};
      case Reach::kSelf:
        return {{"self", 1}};
      case Reach::kShard:
        return {along(mesh::kDenseShard)};
      case Reach::kReplicate:
        return {along(Axis::kDataReplicate)};
      case Reach::kData:
        return {along(mesh::kData)};
      case Reach::kPipeline:
      case Reach::kPeer:
        return {pipeline()};
      case Reach::kDataThenPipeline:
        return {along(mesh::kData), pipeline()};
      case Reach::kTensor:
        return {along(Axis::kTensor)};
      case Reach::kDataTensorPipeline:
        return {along(mesh::kData), along(Axis::kTensor), pipeline()};
      case Reach::kTied:
        return {{"tied", 2}};
    }
    return {};
  }

  const arch::FlatLayout& layout(int unit) const {
    const int kind = model_.order[static_cast<std::size_t>(unit)];
    return layouts_[static_cast<std::size_t>(kind)];
  }
  StateBytes states(const Op& op) const { return state_bytes(layout(op.unit), step_.zero, sizes_); }
  std::int64_t grad_width() const { return sizes_.unit.wide(); }

  const schedule::Program& program_;
  const schedule::StepShape& step_;
  const arch::Model& model_;
  const StepSizes& sizes_;
  const mesh::Mesh& mesh_;
  const Coord coord_;
  const std::int64_t shard_;
  const std::vector<arch::FlatLayout> layouts_;
  // By distinct unit and pass: a step repeats them for every layer and microbatch.
  std::map<std::pair<int, arch::UnitPass>, std::vector<arch::TensorCollective>> collectives_;
  Traffic traffic_;
};

}  // namespace

Traffic step_traffic(const schedule::Program& program, const arch::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank) {
  return Count(program, model, sizes, mesh, rank).run();
}

}  // namespace lockstep::cost
