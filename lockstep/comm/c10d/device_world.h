// Two transports in one world: a c10d backend (NCCL on GPUs) moves what is on the ranks' devices,
// the world behind it what is on their hosts: counts, texts, agreement, checkpoints. A thread looks
// whether operations on devices are over by their deadline, which counts from their issue. A
// failure there names the operation, and nobody: the world behind it watches the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace c10d {
class Backend;
}

namespace lockstep::comm {

class DeviceWatch;

// `host` must outlive it.
class DeviceWorld : public World {
 public:
  // Connects the members of a group of at least two.
  using ConnectBackend =
      std::function<c10::intrusive_ptr<c10d::Backend>(const Membership& place, Deadline deadline)>;
  DeviceWorld(World& host, Device device, ConnectBackend connect_backend);
  ~DeviceWorld() override;

  Rank rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  Device device() const override { return device_; }
  std::vector<LastSeen> last_seen() override { return host_.last_seen(); }
  std::unique_ptr<Communicator> connect(std::string name, std::string axis,
                                        std::vector<Rank> members, Deadline deadline) override {
    return host_.connect(std::move(name), std::move(axis), std::move(members), deadline);
  }
  std::unique_ptr<Communicator> connect_device(std::string name, std::string axis,
                                               std::vector<Rank> members,
                                               Deadline deadline) override;
  std::unique_ptr<Communicator> connect_ring(std::string name, std::string axis,
                                             std::vector<Rank> members, Deadline deadline) override;

 private:
  World& host_;
  const Device device_;
  const ConnectBackend connect_backend_;
  const std::unique_ptr<DeviceWatch> watch_;
};

}  // namespace lockstep::comm
