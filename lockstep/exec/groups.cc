#include "lockstep/exec/groups.h"

#include <span>

#include "lockstep/base/check.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;

// The communicators of a rank, and the axes they span: the tied one only the ends of its axis,
// copies only some. kShardGather, kUp and kDown stand for kShard and kPipeline where memory is a
// device's.
enum Kind : std::size_t {
  kSelf,
  kShard,
  kReplicate,
  kData,
  kTensor,
  kPipeline,
  kTied,
  kShardGather,
  kUp,
  kDown,
  kCopies,
  kContext,
  kExpertShard,
  kExpertReplicate,
  kExpertData,
  kExpertShardGather,
  kExpert,
  kExpertTensor,
};
constexpr mesh::AxisSet kAxes[] = {mesh::AxisSet(),        mesh::kDenseShard,
                                   Axis::kDataReplicate,   mesh::kData,
                                   Axis::kTensor,          Axis::kPipeline,
                                   Axis::kPipeline,        mesh::kDenseShard,
                                   Axis::kPipeline,        Axis::kPipeline,
                                   Axis::kTensor,          Axis::kContext,
                                   Axis::kExpertDataShard, Axis::kExpertDataReplicate,
                                   mesh::kExpertData,      Axis::kExpertDataShard,
                                   Axis::kExpert,          Axis::kExpertTensor};
constexpr const char* kPrefixes[] = {
    "", "", "", "", "", "", "", "gather:", "up:", "down:", "", "", "", "", "", "gather:", "", ""};

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
                                                                   {kData, kTensor, kPipeline},
                                                                   {kExpertShard},
                                                                   {kExpertReplicate},
                                                                   {kExpertData}};
  return kRows[static_cast<std::size_t>(group)];
}

using Connect = decltype(&comm::World::connect);
std::unique_ptr<comm::Communicator> connect(comm::World& world, Connect connect,
                                            const std::string& label, const mesh::Mesh& mesh,
                                            Kind kind, Deadline deadline) {
  const mesh::AxisSet axes = kAxes[kind];
  const mesh::Group group = mesh.group(world.rank(), axes);
  // Two axis sets may span the same ranks; the set keeps their names apart.
  return (world.*connect)(label + kPrefixes[kind] + to_text(axes) + ":" + group.name(),
                          to_text(axes), group.ranks(), deadline);
}

}  // namespace

mesh::AxisSet axes_of(program::CommGroup group) {
  mesh::AxisSet axes;
  for (const Kind kind : kinds_of(group)) axes = axes | kAxes[kind];
  return axes;
}

Groups::Groups(comm::World& world, const std::string& label, const mesh::Mesh& mesh,
               const Shared& shared, Deadline deadline) {
  LS_CHECK(world.size() == mesh.world(), "a mesh of ", mesh.world(), " ranks on a world of ",
           world.size());
  const Rank rank = world.rank();
  is_device_ = world.device().kind != DeviceKind::kCpu;
  const Connect on_device = &comm::World::connect_device;
  const auto is_needed = [&](Kind kind) {
    return (kind != kTensor && kind != kContext) || mesh.degree(kAxes[kind]) > 1;
  };
  all_[kSelf] =
      world.connect_device(join_parts(label, "self:", rank.value), "self", {rank}, deadline);
  for (const Kind kind : {kShard, kReplicate, kData, kTensor, kContext})
    if (is_needed(kind)) all_[kind] = connect(world, on_device, label, mesh, kind, deadline);
  if (shared.experts)
    for (const Kind kind : {kExpertShard, kExpertReplicate, kExpertData})
      all_[kind] = connect(world, on_device, label, mesh, kind, deadline);
  for (const Kind kind : {kExpert, kExpertTensor}) {
    const bool is_tensor =
        kind == kExpertTensor && mesh.degree(kAxes[kind]) == mesh.degree(Axis::kTensor);
    if (shared.experts && mesh.degree(kAxes[kind]) > 1 && !is_tensor)
      all_[kind] = connect(world, on_device, label, mesh, kind, deadline);
  }
  if (!is_device_) {
    all_[kPipeline] = connect(world, on_device, label, mesh, kPipeline, deadline);
  } else {
    all_[kShardGather] = connect(world, on_device, label, mesh, kShardGather, deadline);
    if (shared.experts)
      all_[kExpertShardGather] =
          connect(world, on_device, label, mesh, kExpertShardGather, deadline);
    for (const Kind kind : {kUp, kDown})
      all_[kind] = connect(world, &comm::World::connect_ring, label, mesh, kind, deadline);
    for (const Kind kind : {kData, kTensor, kPipeline})
      if (is_needed(kind))
        host_[kind] = connect(world, &comm::World::connect, label, mesh, kind, deadline);
  }
  if (shared.copies > 1) {
    const std::int64_t n = shared.copies;
    const std::int64_t first = mesh.coord(rank, Axis::kTensor).value / n * n;
    const std::vector<Rank> all = mesh.group(rank, Axis::kTensor).ranks();
    const std::vector<Rank> alike(all.begin() + first, all.begin() + first + n);
    all_[kCopies] = world.connect_device(join_parts(label, "copies:", alike[0].value),
                                         to_text(kAxes[kCopies]), alike, deadline);
  }
  const mesh::Group pipeline = mesh.group(rank, Axis::kPipeline);
  const Rank first = pipeline.rank_at(0), last = pipeline.rank_at(pipeline.size() - 1);
  if (shared.tied && first != last && (rank == first || rank == last))
    all_[kTied] =
        world.connect_device(label + "tied:" + pipeline.name(), "tied", {first, last}, deadline);
}

std::vector<comm::Communicator*> Groups::of(program::CommGroup group) const {
  std::vector<comm::Communicator*> found;
  for (const Kind kind : kinds_of(group))
    if (all_[kind]) found.push_back(all_[kind].get());
  return found;
}

std::vector<comm::Communicator*> Groups::on_host(program::CommGroup group) const {
  if (!is_device_) return of(group);
  std::vector<comm::Communicator*> found;
  for (const Kind kind : kinds_of(group))
    if (host_[kind]) found.push_back(host_[kind].get());
  return found;
}

comm::Communicator& Groups::one(program::CommGroup group) const {
  const auto found = of(group);
  LS_CHECK(found.size() == 1, "an op that communicates in ", found.size(), " groups");
  return *found[0];
}

comm::Communicator& Groups::gathers(program::CommGroup group) const {
  if (!is_device_) return one(group);
  return *all_[group == program::CommGroup::kExpertShard ? kExpertShardGather : kShardGather];
}

comm::Communicator& Groups::copies() const {
  LS_CHECK(all_[kCopies], "every tensor rank has heads of keys of its own");
  return *all_[kCopies];
}

comm::Communicator& Groups::link(program::CommGroup group, Coord from, Coord to) const {
  if (!is_device_ || group != program::CommGroup::kPeer) return one(group);
  return *all_[from.value < to.value ? kUp : kDown];
}

comm::Communicator* Groups::context() const { return all_[kContext].get(); }
comm::Communicator* Groups::experts() const { return all_[kExpert].get(); }
comm::Communicator* Groups::expert_tensor() const { return all_[kExpertTensor].get(); }

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
  for (comm::Communicator* group : on_host(program::CommGroup::kDataTensorPipeline)) {
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
