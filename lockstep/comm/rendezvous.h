// Where the processes of a job meet, as torchrun and its relatives tell them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"

namespace lockstep::comm {

struct Rendezvous {
  Rank rank;
  int world_size = 1;
  std::string host = "127.0.0.1";
  std::uint16_t port = 29500;
  bool agent_hosts_store = false;        // the launcher does; else rank 0 does
  std::optional<int> store_socket = {};  // of rank 0: listens at host and port already
};

// The variable by which a launcher hands on store_socket.
inline constexpr const char* kStoreSocket = "LOCKSTEP_STORE_SOCKET";

using Environment = std::function<std::optional<std::string>(const char* name)>;

// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE. All four must
// be there and make sense together: a job that quietly became one rank would train something else.
Result<Rendezvous> rendezvous_from(const Environment& environment);

// Refuses a process without RANK that a Slurm step has started several times: each would train
// alone.
Result<void> check_alone(const Environment& environment);

// The environment of this process.
std::optional<std::string> process_environment(const char* name);

}  // namespace lockstep::comm
