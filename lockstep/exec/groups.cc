#include "lockstep/exec/groups.h"

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
  pipeline_ = connect(world, label, mesh, Axis::kPipeline, deadline);
  const mesh::Group pipeline = mesh.group(rank, Axis::kPipeline);
  const Rank first = pipeline.rank_at(0), last = pipeline.rank_at(pipeline.size() - 1);
  if (tied && first != last && (rank == first || rank == last))
    tied_ = world.connect(label + "tied:" + pipeline.name(), "tied", {first, last}, deadline);
}

std::vector<comm::Communicator*> Groups::of(schedule::Reach reach) const {
  using schedule::Reach;
  switch (reach) {
    case Reach::kNone:
      return {};
    case Reach::kSelf:
      return {self_.get()};
    case Reach::kShard:
      return {shard_.get()};
    case Reach::kReplicate:
      return {replicate_.get()};
    case Reach::kData:
      return {data_.get()};
    case Reach::kPipeline:
    case Reach::kPeer:
      return {pipeline_.get()};
    case Reach::kDataThenPipeline:
      return {data_.get(), pipeline_.get()};
    case Reach::kTied:
      return tied_ ? std::vector{tied_.get()} : std::vector<comm::Communicator*>{};
  }
  return {};
}

void Groups::agree(const Hash128& digest, Deadline deadline) const {
  // Along the data group, then the groups' verdicts along the pipeline: everyone hears of everyone.
  std::vector<Hash128> seen(static_cast<std::size_t>(data_->size()));
  const auto words = [](auto& hashes) {
    return Buffer{hashes.data(), static_cast<std::int64_t>(hashes.size()) * 2, DType::kI64, {}};
  };
  std::vector<Hash128> own = {digest};
  data_->all_gather(words(own), words(seen), deadline).wait();
  std::int64_t differing = -1;
  for (std::size_t i = 0; i < seen.size() && differing < 0; ++i)
    if (seen[i] != seen[0]) differing = data_->membership().members[i].value;
  struct Verdict {
    Hash128 digest;
    std::int64_t differing, unused;
  };
  std::vector<Verdict> mine = {{seen[0], differing, 0}};
  std::vector<Verdict> all(static_cast<std::size_t>(pipeline_->size()));
  const auto verdict_words = [](auto& verdicts) {
    return Buffer{verdicts.data(), static_cast<std::int64_t>(verdicts.size()) * 4, DType::kI64, {}};
  };
  pipeline_->all_gather(verdict_words(mine), verdict_words(all), deadline).wait();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t rank = all[i].differing;
    if (rank < 0 && all[i].digest != all[0].digest) rank = pipeline_->membership().members[i].value;
    if (rank >= 0)
      throw WorldError(Error{Code::kMismatchedCalls,
                             join_parts("rank ", rank, " holds another program than the others"),
                             "start every rank with the same binary, model and settings"});
  }
}

}  // namespace lockstep::exec
