// Ranks that are processes of this program, and ending work when a signal asks for it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "cli/verb.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/watch.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

// From the first call on, SIGINT, SIGTERM, SIGHUP and SIGUSR1 set the flag instead of ending the
// process, so that work can end where nothing is lost. A second SIGINT, SIGTERM or SIGHUP ends it
// at once. SIGUSR1 may come any number of times: by it the parent of ranks passes on what it was
// sent.
const std::atomic<bool>& stop_on_signals();

// The command line of this process, as a person would type it again.
std::string own_command();

// As stop_on_signals(), for a process that has ranks: a second signal is counted, so that it ends
// them first.
launch::Asked as_launcher();

// Whether a launcher started this process as one rank of a job: RANK is set.
bool is_rank();

// Refuses a run on devices, which `verb` does not use yet.
Result<void> check_on_cpu(const spec::Spec& spec, const std::string& verb);

// Runs this very command line once per rank, each a process with RANK set, and waits for all of
// them. The exit code is that of the first rank that failed. When a rank fails and the others do
// not notice, or one is stopped and so does not hear a signal, they are killed after five seconds;
// after a second SIGINT or SIGTERM, at once.
ExitCode run_as_processes(int ranks, Output& output);

// Runs `body` on the ranks of this process: on `world`, which a launcher's processes have joined,
// or where there is none on so many threads.
void run_on_ranks(comm::World* world, int threads, const std::function<void(comm::World&)>& body);

// Whether this process tells what came of it: it has rank 0.
inline bool leads(const comm::World* world) { return world == nullptr || world->rank() == Rank{0}; }

}  // namespace lockstep::cli
