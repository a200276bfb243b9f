#include "lockstep/comm/nccl/world.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>)
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/nccl/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/store/HashStore.hpp>
#include <torch/csrc/distributed/c10d/store/PrefixStore.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
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

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// The watchdog of ProcessGroupNCCL would end the process on an error or a late peer, before anybody
// could say which rank is to blame.
void silence_watchdog() { setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0); }

DeviceWorld::ConnectBackend connect_at(StorePtr store) {
  silence_watchdog();
  return [store = std::move(store)](const Membership& place, Deadline /*deadline*/) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::hours(24 * 365);  // deadlines are kept by DeviceWorld
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>("nccl/" + place.name, store), place.index,
        place.size(), options);
  };
}

// Gloo's groups of a process, and NCCL's, which meet at the same store.
class NcclWorld final : public DeviceWorld {
 public:
  NcclWorld(std::unique_ptr<ProcessWorld> host, Device device)
      : DeviceWorld(*host, device,
                    connect_at(StorePtr::unsafe_reclaim_from_nonowning(&host->store()->native()))),
        host_(std::move(host)) {}

 private:
  const std::unique_ptr<ProcessWorld> host_;
};

int num_devices() { return c10::cuda::device_count(); }

std::string describe_device(int index) {
  const cudaDeviceProp& of = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return join_parts(
      of.name, ", sm_", of.major, of.minor, ", ", of.multiProcessorCount, " multiprocessors, ",
      to_text(Bytes{static_cast<std::int64_t>(of.totalGlobalMem)}), "; driver for CUDA ",
      driver / 1000, ".", driver % 1000 / 10, ", NCCL ", c10d::getNcclVersion());
}

// Threads meet at a store in memory.
WorldWrap device_per_thread() {
  cuda::install_operators();
  return [store = StorePtr(c10::make_intrusive<c10d::HashStore>())](World& host) {
    const auto index = static_cast<std::int16_t>(host.rank().value);
    if (index >= num_devices())
      throw WorldError({Code::kUnsuitableEnvironment,
                        join_parts("rank ", index, " has no device: there are ", num_devices()),
                        "verify layouts of fewer ranks"});
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    return std::make_unique<DeviceWorld>(host, Device{DeviceKind::kCuda, index}, connect_at(store));
  };
}

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
          },
          .num_devices = num_devices,
          .describe_device = describe_device,
          .device_per_thread = device_per_thread};
}

}  // namespace lockstep::comm
