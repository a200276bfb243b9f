#include "lockstep/comm/backends/backends.h"

#include <algorithm>

#include "lockstep/comm/gloo/world.h"
#if LOCKSTEP_NCCL
#include "lockstep/comm/nccl/world.h"
#endif

namespace lockstep::comm {

std::span<const Backend> backends() {
  static const Backend kRows[] = {
      gloo_backend(),
#if LOCKSTEP_NCCL
      nccl_backend(),
#endif
  };
  return kRows;
}

const Backend* backend_for(DeviceKind device) {
  const auto found = std::ranges::find(backends(), device, &Backend::device);
  return found == backends().end() ? nullptr : &*found;
}

Result<void> check_backend(DeviceKind device) {
  const Backend* const backend = backend_for(device);
  if (backend != nullptr) return backend->check();
  return Error{Code::kUnsuitableEnvironment,
               "this build has no backend for devices of kind " + std::string(to_text(device)),
               "`lockstep doctor` names what it has"};
}

std::unique_ptr<World> join(DeviceKind device, const Rendezvous& rendezvous, Deadline deadline,
                            const JoinOptions& options) {
  if (const auto can = check_backend(device); !can.ok()) throw WorldError(can.error());
  return backend_for(device)->join(rendezvous, deadline, options);
}

}  // namespace lockstep::comm
