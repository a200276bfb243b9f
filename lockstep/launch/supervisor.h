// A launcher: looks after the ranks of one host, and keeps in step with the launchers of the other
// hosts by way of the coordinator, which is a thread of the first one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/launch/coordinator.h"
#include "lockstep/launch/host.h"
#include "lockstep/launch/watch.h"

namespace lockstep::launch {

// Variables of ranks: where they leave copies of their state that outlive them, and after how many
// steps.
inline constexpr const char* kSnapshots = "LOCKSTEP_SNAPSHOTS";
inline constexpr const char* kSnapshotInterval = "LOCKSTEP_SNAPSHOT_INTERVAL";

struct HostJob {
  Host host;
  int ranks = 1;       // on this host
  Policy policy;       // of host 0; the others take hosts, ranks and wait of it
  std::string secret;  // of all hosts
  std::string logs;    // a folder; empty: ranks print where this process does
  std::string program;
  std::vector<std::string> environment = {};  // "NAME=value", for the ranks
  bool has_spares = false;  // processes that wait to become the ranks of the next start
  // The arguments of ranks: at first, and of a restart, with a checkpoint or without one.
  std::function<std::vector<std::string>(bool restarts, bool has_checkpoint)> words;
};

// Until the job is over. Called on the thread that lives as long as the process: ranks die with it.
Verdict run_host(const HostJob& job, const Asked& asked, const Watch::Tell& tell);

}  // namespace lockstep::launch
