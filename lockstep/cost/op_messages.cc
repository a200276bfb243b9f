#include "lockstep/cost/op_messages.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/exact_sum.h"

namespace lockstep::cost {

using mesh::Axis;
using program::CommGroup;
using program::Op;
using program::OpKind;

namespace {

constexpr std::int64_t kWordBytes = 8;

// Two exact sums, the tokens that took part and the ranks that want to stop; of routers two sums
// and the tokens of each expert; of the first microbatch alone one sum and its tokens; of checks
// how many found something, and two halves of a sum.
std::int64_t norm_words(const program::StepShape& step) {
  constexpr auto kSum = static_cast<std::int64_t>(ExactSum::kNumWords);
  const std::int64_t routed = step.num_routed();
  return 2 * kSum + 2 + (routed > 0 ? 2 * kSum + routed : 0) + (step.noise ? kSum + 1 : 0) +
         (step.checks ? 3 : 0);
}

}  // namespace

OpMessages::OpMessages(const program::Program& program, const model::Model& model,
                       const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank)
    : step_(program.step),
      model_(model),
      sizes_(sizes),
      mesh_(mesh),
      coord_(mesh.coord(rank, Axis::kPipeline)),
      shard_(mesh.coord(rank, mesh::kDenseShard).value),
      expert_shard_(mesh.coord(rank, Axis::kExpertDataShard).value),
      layouts_(model::flat_layouts(model, sizes.unit.tp, sizes.unit.ep, sizes.unit.etp)) {
  LS_CHECK(mesh.degree(Axis::kPipeline) == step_.shape.coords, "a program of ", step_.shape.coords,
           " pipeline ranks on a mesh of ", mesh.degree(Axis::kPipeline));
  LS_CHECK(mesh.degree(mesh::kDenseShard) == sizes.shards, "sizes for ", sizes.shards,
           " shards on a mesh of ", mesh.degree(mesh::kDenseShard));
  LS_CHECK(step_.experts.empty() || mesh.degree(Axis::kExpertDataShard) == sizes.expert_shards,
           "sizes for ", sizes.expert_shards, " shards of experts on a mesh of ",
           mesh.degree(Axis::kExpertDataShard));
  LS_CHECK(mesh.degree(Axis::kContext) == sizes.unit.cp, "sizes for ", sizes.unit.cp,
           " context ranks on a mesh of ", mesh.degree(Axis::kContext));
  LS_CHECK(
      mesh.degree(Axis::kTensor) == sizes.unit.tp && step_.tensor_parallel == (sizes.unit.tp > 1),
      "sizes for ", sizes.unit.tp, " tensor ranks on a mesh of ", mesh.degree(Axis::kTensor));
}

std::vector<Message> OpMessages::of(const Op& op) const {
  const std::int64_t grad_width = sizes_.unit.wide();
  const auto pieces = [&](comm::OpKind kind, std::int64_t piece) {
    std::vector<Message> all;
    for (const Party& party : parties(op.group))
      all.push_back({party.axis, party.size, kind, piece * party.size, piece * (party.size - 1)});
    return all;
  };
  switch (op.kind) {
    case OpKind::kCount:
      return all_reduce(op, 1, kWordBytes);
    case OpKind::kNorm:
      return all_reduce(op, norm_words(step_), kWordBytes);
    case OpKind::kGather:
    case OpKind::kAllGatherUpdated:
      return pieces(comm::OpKind::kAllGather, states(op.unit).param_shard);
    case OpKind::kReduce:
      if (step_.zero == 0) return all_reduce(op, states(op.unit).elements, grad_width);
      return pieces(comm::OpKind::kReduceScatter, states(op.unit).grad_shard);
    case OpKind::kReduceAcross:
      return all_reduce(op, states(op.unit).owned, grad_width);
    case OpKind::kReduceReplicated:
      return with_copies(
          reduce_part(op, op.unit, layout(op.unit).partial(sizes_.unit.sequence_parallel)), op.unit,
          own(op.unit));
    case OpKind::kReduceTied:
      return reduce_tied(op);
    case OpKind::kSend:
      return transfer(comm::OpKind::kSend, 1);
    case OpKind::kPostRecv:
      return transfer(comm::OpKind::kRecv, 0);
    default:
      return sum_noise(op);
  }
}

// Where tensor and context ranks hold summands of the gradient that the noise scale looks at.
std::vector<Message> OpMessages::sum_noise(const Op& op) const {
  std::vector<Message> sums;
  if (!sizes_.looks_at_noise || !step_.is_noise(op)) return sums;
  const std::int64_t width = sizes_.unit.wide();
  if (sizes_.unit.tp > 1 && step_.is_partial(op.unit)) {
    const model::FlatRange part = layout(op.unit).partial(sizes_.unit.sequence_parallel);
    if (part.size() > 0) sums.push_back(all_reduce(along(Axis::kTensor), part.size(), width));
    sums = with_copies(std::move(sums), op.unit, {0, layout(op.unit).size});
  }
  if (sizes_.unit.cp > 1)
    step_.for_each_segment(op.unit, [&](int segment) {
      sums.push_back(all_reduce(along(Axis::kContext), states(segment).elements, width));
    });
  return sums;
}

std::vector<Message> OpMessages::with_copies(std::vector<Message> all, int segment,
                                             const model::FlatRange& held) const {
  const model::FlatLayout& flat = layout(segment);
  const Party alike = {along(Axis::kTensor).axis, flat.copies};
  for (const model::FlatRange& range : flat.copied)
    if (const std::int64_t elements = common(held, range).size(); elements > 0)
      all.push_back(all_reduce(alike, elements, sizes_.unit.wide()));
  return all;
}

model::FlatRange OpMessages::own(int segment) const {
  if (step_.zero == 0) return layout(segment).shard(1, 0);
  return layout(segment).shard(sizes_.shards_of(step_, segment),
                               step_.is_experts(segment) ? expert_shard_ : shard_);
}

std::vector<Message> OpMessages::transfer(comm::OpKind kind, std::int64_t parts) const {
  const Party pipeline = along(Axis::kPipeline);
  const std::int64_t bytes = boundary_bytes(model_.config, sizes_.unit);
  return {{pipeline.axis, pipeline.size, kind, bytes, bytes * parts}};
}

// The piece of the gradient and the shared weight begin and end alike in both units.
std::vector<Message> OpMessages::reduce_tied(const Op& op) const {
  const bool both = step_.holds(coord_, 0) && step_.holds(coord_, step_.head());
  if (both) return {};  // added in place
  const int unit = step_.holds(coord_, 0) ? 0 : step_.head();
  return reduce_part(op, unit, layout(unit).tied);
}

// Those elements of the range that this rank's piece of the gradient holds.
std::vector<Message> OpMessages::reduce_part(const Op& op, int segment,
                                             const model::FlatRange& range) const {
  const std::int64_t elements = common(own(segment), range).size();
  if (elements == 0) return {};
  return all_reduce(op, elements, sizes_.unit.wide());
}

std::vector<Message> OpMessages::all_reduce(const Op& op, std::int64_t elements,
                                            std::int64_t width) const {
  std::vector<Message> all;
  for (const Party& party : parties(op.group)) all.push_back(all_reduce(party, elements, width));
  return all;
}

// Padded to a multiple of the members, as communicator.cc does.
Message OpMessages::all_reduce(const Party& party, std::int64_t elements, std::int64_t width) {
  const std::int64_t piece = (elements + party.size - 1) / party.size;
  return {party.axis, party.size, comm::OpKind::kAllReduce, piece * width * party.size,
          2 * piece * width * (party.size - 1)};
}

OpMessages::Party OpMessages::along(mesh::AxisSet axes) const {
  return {to_text(axes), mesh_.degree(axes)};
}

std::vector<OpMessages::Party> OpMessages::parties(CommGroup group) const {
  switch (group) {
    case CommGroup::kNone:
      return {};
    case CommGroup::kSelf:
      return {{"self", 1}};
    case CommGroup::kShard:
      return {along(mesh::kDenseShard)};
    case CommGroup::kReplicate:
      return {along(Axis::kDataReplicate)};
    case CommGroup::kData:
      return {along(mesh::kData)};
    case CommGroup::kPipeline:
    case CommGroup::kPeer:
      return {along(Axis::kPipeline)};
    case CommGroup::kDataThenPipeline:
      return {along(mesh::kData), along(Axis::kPipeline)};
    case CommGroup::kTensor:
      return {along(Axis::kTensor)};
    case CommGroup::kDataTensorPipeline:
      return {along(mesh::kData), along(Axis::kTensor), along(Axis::kPipeline)};
    case CommGroup::kTied:
      return {{"tied", 2}};
    case CommGroup::kExpertShard:
      return {along(Axis::kExpertDataShard)};
    case CommGroup::kExpertReplicate:
      return {along(Axis::kExpertDataReplicate)};
    case CommGroup::kExpertData:
      return {along(mesh::kExpertData)};
  }
  return {};
}

const model::FlatLayout& OpMessages::layout(int segment) const {
  return layouts_[model_.layout_of(segment)];
}

StateBytes OpMessages::states(int segment) const {
  return state_bytes(layout(segment), step_.zero, sizes_.unit.dtype,
                     sizes_.shards_of(step_, segment));
}

double OpMessages::owned_elements() const {
  double elements = 0;
  step_.for_each_segment(
      coord_, [&](int segment) { elements += static_cast<double>(states(segment).owned); });
  return elements;
}

}  // namespace lockstep::cost
