#include "lockstep/exec/groups.h"

#include <span>

#include "lockstep/base/check.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;

// The communicators of a rank, and the axes they span: the tied one only the ends of its axis.
enum Kind : std::size_t { kSelf, kShard, kReplicate, kData, kTensor, kPipeline, kTied };
constexpr mesh::AxisSet kAxes[] = {mesh::AxisSet(), mesh::kDenseShard, Axis::kDataReplicate,
                                   mesh::kData,     Axis::kTensor,     Axis::kPipeline,
                                   Axis::kPipeline};

// Those that an op uses, one after the other; in the order of CommGroup.
const std::vector<Kind>& kinds_of(program::CommGroup group) {
  static const std::vector<Kind> kRows[program::kNumCommGroups] = {{},
                                                                   {kSelf},
                                                                   {kShard},
                                                                   {kReplicate},
                                                                   {kData},
                                                                   {kPipeline},
                                                                   {kData, kPipeline},
                                                                   {kTied},
                                                                   {kPipeline},
                                                                   {kTensor},
                                                                   {kData, kTensor, kPipeline}};
  return kRows[static_cast<std::size_t>(group)];
}

std::unique_ptr<comm::Communicator> connect(comm::World& world, const std::string& label,
                                            const mesh::Mesh& mesh, mesh::AxisSet axes,
                                            Deadline deadline) {
  const mesh::Group group = mesh.group(world.rank(), axes);
  // Two axis sets may span the same ranks; the set keeps their names apart.
  return world.connect(label + to_text(axes) + ":" + group.name(), to_text(axes), group.ranks(),
                       deadline);
}

}  // namespace

mesh::AxisSet axes_of(program::CommGroup group) {
  mesh::AxisSet axes;
  for (const Kind kind : kinds_of(group)) axes = axes | kAxes[kind];
  return axes;
}

Groups::Groups(comm::World& world, const std::string& label, const mesh::Mesh& mesh, bool tied,
               Deadline deadline) {
  LS_CHECK(world.size() == mesh.world(), "a mesh of ", mesh.world(), " ranks on a world of ",
           world.size());
  const Rank rank = world.rank();
  all_[kSelf] = world.connect(join_parts(label, "self:", rank.value), "self", {rank}, deadline);
  for (const Kind kind : {kShard, kReplicate, kData, kTensor, kPipeline})
    if (kind != kTensor || mesh.degree(Axis::kTensor) > 1)
      all_[kind] = connect(world, label, mesh, kAxes[kind], deadline);
  const mesh::Group pipeline = mesh.group(rank, Axis::kPipeline);
  const Rank first = pipeline.rank_at(0), last = pipeline.rank_at(pipeline.size() - 1);
  if (tied && first != last && (rank == first || rank == last))
    all_[kTied] = world.connect(label + "tied:" + pipeline.name(), "tied", {first, last}, deadline);
}

std::vector<comm::Communicator*> Groups::of(program::CommGroup group) const {
  std::vector<comm::Communicator*> found;
  for (const Kind kind : kinds_of(group))
    if (all_[kind]) found.push_back(all_[kind].get());
  return found;
}

void Groups::agree(const Hash128& digest, Deadline deadline) const {
  struct Verdict {
    Hash128 digest;
    std::int64_t differing, unused;  // a rank, or -1
  };
  const auto words = [](std::span<Verdict> verdicts) {
    return Buffer{verdicts.data(), std::ssize(verdicts) * 4, DType::kI64, {}};
  };
  // Axis by axis, each passing on the verdicts of the one before: everyone hears of everyone.
  Verdict own = {digest, -1, 0};
  for (comm::Communicator* group : of(program::CommGroup::kDataTensorPipeline)) {
    std::vector<Verdict> all(group->size());
    group->all_gather(words({&own, 1}), words(all), deadline).wait();
    own = {all[0].digest, -1, 0};
    for (std::size_t i = 0; i < all.size() && own.differing < 0; ++i) {
      own.differing = all[i].differing;
      if (own.differing < 0 && all[i].digest != own.digest)
        own.differing = group->membership().members[i].value;
    }
  }
  if (own.differing >= 0)
    throw WorldError(
        Error{Code::kMismatchedCalls,
              join_parts("rank ", own.differing, " holds another program than the others"),
              "start every rank with the same binary, model and settings"});
}

}  // namespace lockstep::exec
