#include "lockstep/tensor/gloo_world.h"

#include <algorithm>
#include <csignal>

#include "lockstep/tensor/gloo_communicator.h"
#include "lockstep/tensor/store.h"

namespace lockstep::tensor {
namespace {

using comm::CommError;
using comm::OpKind;

CommError unreachable(const std::string& what, const std::exception& cause) {
  std::string text = cause.what();
  return CommError({Code::kStoreLost, what + ": " + text.substr(0, text.find('\n')),
                    "check that every rank was started and that MASTER_ADDR and MASTER_PORT are "
                    "those of rank 0"},
                   OpKind::kBarrier, {});
}

class GlooWorld final : public comm::World {
 public:
  GlooWorld(const comm::Rendezvous& rendezvous, Deadline deadline) : rendezvous_(rendezvous) {
    // c10d writes to sockets whose other end may be gone and counts on the error, as Python
    // programs do.
    struct sigaction action = {};
    if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
      std::signal(SIGPIPE, SIG_IGN);
    try {
      const bool hosts = rendezvous.rank == Rank{0} && !rendezvous.agent_hosts_store;
      store_ = hosts ? Store::host(rendezvous.port)
                     : Store::connect(rendezvous.host, rendezvous.port, deadline);
      board_ = std::make_shared<ProgressBoard>(rendezvous, deadline, shared_position());
    } catch (const std::exception& cause) {
      throw unreachable("rank " + std::to_string(rendezvous.rank.value) +
                            " can not reach the store at " + rendezvous.host + ":" +
                            std::to_string(rendezvous.port),
                        cause);
    }
  }

  Rank rank() const override { return rendezvous_.rank; }
  int size() const override { return rendezvous_.world_size; }
  std::vector<comm::Sighting> sightings() override { return board_->sightings(); }

  std::unique_ptr<comm::Communicator> connect(std::string name, std::string axis,
                                              std::vector<Rank> members,
                                              Deadline deadline) override {
    comm::Membership place = membership(std::move(name), std::move(axis), std::move(members));
    const bool loopback = rendezvous_.host == "127.0.0.1" || rendezvous_.host == "localhost";
    try {
      auto link = place.size() == 1
                      ? nullptr
                      : GlooLink::connect(*store_, "group/" + place.name, place.index, place.size(),
                                          loopback ? "127.0.0.1" : "", deadline);
      return std::make_unique<GlooCommunicator>(std::move(place), ledger(), std::move(link),
                                                board_);
    } catch (const std::exception& cause) {
      throw unreachable("group " + place.name + " could not be connected", cause);
    }
  }

 private:
  comm::Rendezvous rendezvous_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<ProgressBoard> board_;
};

}  // namespace

std::unique_ptr<comm::World> join_gloo(const comm::Rendezvous& rendezvous, Deadline deadline) {
  return std::make_unique<GlooWorld>(rendezvous, deadline);
}

Bytes gloo_scratch(OpKind op, Bytes bytes, int size) {
  if (size == 1 || (op != OpKind::kReduceScatter && op != OpKind::kAllReduce)) return {0};
  const std::int64_t piece = (bytes.value + size - 1) / size,
                     segment = std::min(piece, kReduceSegmentBytes);
  if (segment == 0) return {0};
  const std::int64_t depth = std::min((piece + segment - 1) / segment, kSegmentsInFlight);
  return {depth * (size - 1) * segment};
}

}  // namespace lockstep::tensor
