#include "lockstep/exec/groups.h"

#include <span>
#include <string>

#include "lockstep/base/check.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;

std::vector<Rank> members_of(const mesh::Group& group) { return {group.begin(), group.end()}; }

std::unique_ptr<comm::Communicator> connect(comm::World& world, const std::string& label,
                                            const mesh::Mesh& mesh, mesh::AxisSet axes,
                                            Deadline deadline) {
  const mesh::Group group = mesh.group(world.rank(), axes);
  // Two axis sets may span the same ranks; the set keeps their names apart.
  return world.connect(label + to_text(axes) + ":" + group.name(), to_text(axes), members_of(group),
                       deadline);
}

}  // namespace

Groups::Groups(comm::World& world, const std::string& label, const mesh::Mesh& mesh, bool tied,
               Deadline deadline) {
  LS_CHECK(world.size() == mesh.world(), "a mesh of ", mesh.world(), " ranks on a world of ",
           world.size());
  const Rank rank = world.rank();
  self_ = world.connect(label + "self:" + std::to_string(rank.value), "self", {rank}, deadline);
  shard_ = connect(world, label, mesh, mesh::kDenseShard, deadline);
  replicate_ = connect(world, label, mesh, Axis::kDataReplicate, deadline);
  data_ = connect(world, label, mesh, mesh::kData, deadline);
  if (mesh.degree(Axis::kTensor) > 1)
    tensor_ = connect(world, label, mesh, Axis::kTensor, deadline);
  pipeline_ = connect(world, label, mesh, Axis::kPipeline, deadline);
  const mesh::Group pipeline = mesh.group(rank, Axis::kPipeline);
  const Rank first = pipeline.rank_at(0), last = pipeline.rank_at(pipeline.size() - 1);
  if (tied && first != last && (rank == first || rank == last))
    tied_ = world.connect(label + "tied:" + pipeline.name(), "tied", {first, last}, deadline);
}

std::vector<comm::Communicator*> Groups::of(program::CommGroup group) const {
  using program::CommGroup;
  using Several = std::vector<comm::Communicator*>;
  switch (group) {
    case CommGroup::kNone:
      return {};
    case CommGroup::kSelf:
      return {self_.get()};
    case CommGroup::kShard:
      return {shard_.get()};
    case CommGroup::kReplicate:
      return {replicate_.get()};
    case CommGroup::kData:
      return {data_.get()};
    case CommGroup::kPipeline:
    case CommGroup::kPeer:
      return {pipeline_.get()};
    case CommGroup::kDataThenPipeline:
      return {data_.get(), pipeline_.get()};
    case CommGroup::kDataTensorPipeline:
      return tensor_ ? Several{data_.get(), tensor_.get(), pipeline_.get()}
                     : Several{data_.get(), pipeline_.get()};
    case CommGroup::kTensor:
      return tensor_ ? Several{tensor_.get()} : Several{};
    case CommGroup::kTied:
      return tied_ ? Several{tied_.get()} : Several{};
  }
  return {};
}

void Groups::agree(const Hash128& digest, Deadline deadline) const {
  struct Verdict {
    Hash128 digest;
    std::int64_t differing, unused;  // a rank, or -1
  };
  const auto words = [](std::span<Verdict> verdicts) {
    return Buffer{verdicts.data(), static_cast<std::int64_t>(verdicts.size()) * 4, DType::kI64, {}};
  };
  // Axis by axis, each passing on the verdicts of the one before: everyone hears of everyone.
  Verdict own = {digest, -1, 0};
  for (comm::Communicator* group : of(program::CommGroup::kDataTensorPipeline)) {
    std::vector<Verdict> all(static_cast<std::size_t>(group->size()));
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
