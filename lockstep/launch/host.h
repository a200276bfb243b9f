// Which host of a job this is, as torchrun's variables, a Slurm step, an indexed job of Kubernetes
// or options say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::launch {

struct Host {
  int number = 0;  // from 0; the first one has rank 0 and the coordinator
  int hosts = 1;
  std::string coordinator = "127.0.0.1";  // its address or name
  std::uint16_t port = 0;
  std::string job = "lockstep";  // differs between jobs that could meet by mistake
};

// What options say; whatever is absent comes from the environment.
struct HostOptions {
  std::optional<int> hosts = {}, number = {}, port = {};
  std::optional<std::string> coordinator = {};
  std::optional<std::string> service = {};  // headless, of a Kubernetes job
};

// From the options; NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT; variables of a Slurm step with one
// task on each of its nodes; JOB_COMPLETION_INDEX with a service, on a pod called `name`. One host
// where nothing speaks of several. Refuses (LS0602) sources that contradict each other, several
// hosts of which something is unknown, and a process that is a rank already. A coordinator that is
// not reached by loopback alone needs a secret of at least 16 characters in LOCKSTEP_LAUNCH_SECRET.
Result<Host> find_host(const HostOptions& options, const comm::Environment& environment,
                       const std::string& name);

// "n0" of "n[0-3,7],m1": the first of a list as Slurm writes it.
std::string first_of_nodelist(const std::string& list);

// The name of this machine.
std::string own_name();

}  // namespace lockstep::launch
