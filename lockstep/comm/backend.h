// Backends: how ranks that are processes are joined to a world. A backend is one row; all rows are
// in comm/backends/backends.cc, and every program that joins a job takes one of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/result.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

// Makes what a rank sees in place of its world, which outlives it.
using WorldWrap = std::function<std::unique_ptr<World>(World& inner)>;

struct JoinOptions {
  // What must be the same on all ranks, by name: settings, versions.
  std::vector<std::pair<std::string, std::string>> facts = {};
  const std::atomic<bool>* stop = nullptr;  // set: give up soon
  // While ranks meet: who is missing. Afterwards, on another thread: who has fallen silent.
  std::function<void(const std::string&)> tell = {};
  // How long a rank may be without a heartbeat, whether anybody waits for it or not.
  Seconds silence = {60};
};

struct Backend {
  std::string_view name;
  DeviceKind device;  // where its buffers are
  // Why it cannot be used on this machine; success when it can.
  Result<void> (*check)();
  // Joins the world: all ranks meet, and a rank that is missing, comes twice or differs in a fact
  // is refused on every one of them. Throws WorldError. The death of a rank, and what another rank
  // has found to be a failure, ends all communicators of the world within moments.
  std::unique_ptr<World> (*join)(const Rendezvous& rendezvous, Deadline deadline,
                                 const JoinOptions& options);
  // For ranks that are threads of this process: how many devices there are, and a wrap for all
  // ranks of one world, which gives each the device of its number. Null where devices are hosts.
  int (*num_devices)() = nullptr;
  std::string (*describe_device)(int index) = nullptr;  // name, architecture, memory, versions
  WorldWrap (*device_per_thread)() = nullptr;
};

}  // namespace lockstep::comm
