// Starts the ranks of a job as processes of this machine, the way torchrun would.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"
#include "lockstep/launch/page.h"

namespace lockstep::launch {

// Where ranks of this machine are in a job of several hosts.
struct Place {
  int first_rank = 0;
  int world_size = 1;
  std::string host;  // of rank 0's store
  std::uint16_t port = 0;
  int store_socket = -1;  // listens there, and is for rank 0 where that is here; the caller's
};

struct Job {
  std::string program;
  std::vector<std::string> arguments;
  int num_ranks = 1;                     // of this machine
  std::vector<std::string> environment;  // "NAME=value", added to this process's own
  std::string output_prefix;             // when set, what rank 3 prints goes to the file <prefix>3
  std::optional<Place> place = {};       // none: all ranks are here
  struct Output {
    int out = -1, err = -1;  // descriptors; negative: this process's own
  };
  std::vector<Output> outputs = {};  // of the ranks here, in their order; none: all inherit
};

// To be called first of all by a program that may be a rank of such a job: the kernel then kills it
// when the thread that started it ends, in whatever way. Ends the process when that has happened
// already.
void end_with_parent();

class Spares;

// One that runs, as whoever started it has it. Movable.
struct Process {
  struct Ending {
    std::optional<int> exit_code;  // empty when a signal ended it
    int signal = 0;
    bool ok() const { return exit_code == 0; }
  };
  pid_t pid = 0;
  Descriptor pidfd, reports;
  std::optional<Page> page = {};
  std::unique_ptr<std::atomic<bool>> died = std::make_unique<std::atomic<bool>>(false);
  std::optional<Ending> ending = {};
};

// Starts one. `more` are descriptors that it gets besides, as (here, there); what it prints goes to
// `output`, or to the file `output_path`.
struct Start {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // in front of this process's own
  Job::Output output = {};
  std::string output_path = "";
  std::vector<int> inherited = {};
};
Result<Process> start_process(const Start& start);

// The running ranks of this machine, numbered here from 0 wherever they are in the job. Those still
// running when it is destroyed are killed, and those that called end_with_parent() die with whoever
// started them: a job never outlives its launcher. One thread.
class RankProcesses {
 public:
  // Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
  // and one thread per rank for OpenMP and MKL. Rank 0 inherits the socket that listens on that
  // port (comm::Rendezvous::store_socket), so that nobody else can take it.
  // Each has a page. `spares`, where there are any, become ranks in the place of new processes; all
  // of them were started with the program and arguments of the job.
  static Result<RankProcesses> start(const Job& job, Spares* spares = nullptr);
  RankProcesses(RankProcesses&&) = default;
  RankProcesses& operator=(RankProcesses&&) = delete;
  ~RankProcesses();

  using Ending = Process::Ending;

  int size() const { return static_cast<int>(ranks_.size()); }
  pid_t pid(Rank rank) const { return ranks_[rank.value].pid; }
  // Both become readable: when the rank ends; when it has reported.
  int ended(Rank rank) const { return ranks_[rank.value].pidfd; }
  int reports(Rank rank) const { return ranks_[rank.value].reports; }
  // Waits until the rank ends; nothing when the deadline passes first.
  std::optional<Ending> wait(Rank rank, Deadline deadline);
  void signal(Rank rank, int number) const;
  // The letter of /proc/PID/stat: T is stopped by a signal, t by a debugger. 0: it has ended.
  char state(Rank rank) const;
  const Page& page(Rank rank) const { return *ranks_[rank.value].page; }

  // From now on, once the rank holds its page: whether it has died, or is about to, known before it
  // can be waited for. `deaths` becomes readable when that changes, for any rank.
  void watch_page(Rank rank);
  bool has_died(Rank rank) const { return *ranks_[rank.value].died; }
  int deaths() const { return *deaths_; }

 private:
  RankProcesses() = default;
  std::shared_ptr<Descriptor> deaths_;  // behind threads that write to it
  std::vector<Process> ranks_;
};

}  // namespace lockstep::launch
