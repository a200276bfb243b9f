#include "lockstep/comm/gloo/world.h"

#include "lockstep/comm/c10d/process_world.h"
#include "lockstep/comm/call_beside.h"
#include "lockstep/comm/gloo/communicator.h"

namespace lockstep::comm {
namespace {

class GlooWorld final : public ProcessWorld {
 public:
  using ProcessWorld::ProcessWorld;

 private:
  std::unique_ptr<Communicator> connect_group(Membership place, Deadline deadline) override {
    auto link = place.size() == 1 ? nullptr : connect_link(place, deadline);
    return std::make_unique<GlooCommunicator>(std::move(place), ledger(), siblings(),
                                              std::move(link), board());
  }

  // Left behind when a rank is lost or a signal comes.
  std::unique_ptr<GlooLink> connect_link(const Membership& place, Deadline deadline) {
    return call_beside(
        [store = store(), place, address = own_address(), deadline] {
          return GlooLink::connect(*store, "group/" + place.name, place.index, place.size(),
                                   address, deadline);
        },
        [&] { check_connecting(deadline); });
  }
};

}  // namespace

Backend gloo_backend() {
  return {.name = "gloo",
          .device = DeviceKind::kCpu,
          .check = []() -> Result<void> { return {}; },
          .join = [](const Rendezvous& rendezvous, Deadline deadline,
                     const JoinOptions& options) -> std::unique_ptr<World> {
            return std::make_unique<GlooWorld>(rendezvous, deadline, options);
          }};
}

}  // namespace lockstep::comm
