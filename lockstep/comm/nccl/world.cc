#include "lockstep/comm/nccl/world.h"

#include <c10/cuda/CUDAFunctions.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>)
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/nccl/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/store/PrefixStore.hpp>
#endif

#include <algorithm>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/comm/c10d/device_world.h"
#include "lockstep/comm/c10d/process_world.h"
#include "lockstep/comm/gloo/world.h"
#include "lockstep/cuda/operators.h"

namespace lockstep::comm {
namespace {

Device own_device(const Rendezvous& rendezvous) {
  const std::optional<std::string> local = process_environment("LOCAL_RANK");
  const std::optional<int> index = local ? number_in<int>(*local) : rendezvous.rank.value;
  if (!index || *index < 0)
    throw WorldError({Code::kUnsuitableEnvironment, "LOCAL_RANK is no number: " + *local,
                      "start ranks by torchrun, or set LOCAL_RANK to a device's number"});
  const int devices = std::max<int>(1, c10::cuda::device_count());
  return {DeviceKind::kCuda, static_cast<std::int16_t>(*index % devices)};
}

// Gloo's groups of a process, and NCCL's, which meet at the same store.
class NcclWorld final : public DeviceWorld {
 public:
  NcclWorld(std::unique_ptr<ProcessWorld> host, Device device)
      : DeviceWorld(*host, device,
                    [store = host->store()](const Membership& place, Deadline deadline) {
                      return connect_group(*store, place, deadline);
                    }),
        host_(std::move(host)) {}

 private:
  static c10::intrusive_ptr<c10d::Backend> connect_group(const Store& store,
                                                         const Membership& place,
                                                         Deadline deadline) {
    auto native = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.native());
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("nccl/" + place.name, std::move(native));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = in_milliseconds(deadline);
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(prefixed), place.index,
                                                       place.size(), options);
  }

  const std::unique_ptr<ProcessWorld> host_;
};

}  // namespace

Backend nccl_backend() {
  return {.name = "nccl",
          .device = DeviceKind::kCuda,
          .check = []() -> Result<void> {
            if (c10::cuda::device_count() > 0) return {};
            return Error{Code::kUnsuitableEnvironment, "no CUDA device was found",
                         "`device.kind = cpu` trains on processors, over gloo"};
          },
          .join = [](const Rendezvous& rendezvous, Deadline deadline,
                     const JoinOptions& options) -> std::unique_ptr<World> {
            const Device device = own_device(rendezvous);
            c10::cuda::set_device(static_cast<c10::DeviceIndex>(device.index));
            cuda::install_operators();
            return std::make_unique<NcclWorld>(join_gloo(rendezvous, deadline, options), device);
          }};
}

}  // namespace lockstep::comm
