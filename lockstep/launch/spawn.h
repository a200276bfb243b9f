// Starts the ranks of a job as processes of this machine, the way torchrun would.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"

namespace lockstep::launch {

struct Job {
  std::string program;
  std::vector<std::string> arguments;
  int num_ranks = 1;
  std::vector<std::string> environment;  // "NAME=value", added to this process's own
  std::string output_prefix;             // when set, what rank 3 prints goes to the file <prefix>3
};

// The running ranks. Those still running when it is destroyed are killed: a job never outlives who
// started it. One thread.
class RankProcesses {
 public:
  // Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (a
  // free port), and one thread per rank for OpenMP and MKL.
  static Result<RankProcesses> start(const Job& job);
  RankProcesses(RankProcesses&&) = default;
  RankProcesses& operator=(RankProcesses&&) = delete;
  ~RankProcesses();

  struct Ending {
    std::optional<int> exit_code;  // empty when a signal ended it
    int signal = 0;
    bool ok() const { return exit_code == 0; }
  };

  pid_t pid(Rank rank) const { return pids_[static_cast<std::size_t>(rank.value)]; }
  // Waits until the rank ends; nothing when the deadline passes first.
  std::optional<Ending> wait(Rank rank, Deadline deadline);
  void signal(Rank rank, int number) const;

 private:
  RankProcesses() = default;
  std::vector<pid_t> pids_;
  std::vector<std::optional<Ending>> endings_;
};

}  // namespace lockstep::launch
