#include "lockstep/launch/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "lockstep/base/descriptor.h"
#include "lockstep/comm/address.h"
#include "lockstep/comm/rendezvous.h"

extern char** environ;

namespace lockstep::launch {
namespace {

constexpr const char* kParent = "LOCKSTEP_LAUNCHER";  // its process id

std::vector<std::string> environment_of(const Job& job, int rank, int listener) {
  const std::string size = std::to_string(job.num_ranks), number = std::to_string(rank);
  const int port = comm::port_of(listener);
  std::vector<std::string> own = {"RANK=" + number,
                                  "WORLD_SIZE=" + size,
                                  "LOCAL_RANK=" + number,
                                  "LOCAL_WORLD_SIZE=" + size,
                                  "MASTER_ADDR=127.0.0.1",
                                  "MASTER_PORT=" + std::to_string(port),
                                  "OMP_NUM_THREADS=1",
                                  "MKL_NUM_THREADS=1",
                                  kParent + ("=" + std::to_string(::getpid()))};
  if (rank == 0) own.push_back(comm::kStoreSocket + ("=" + std::to_string(listener)));
  // The first of a name counts.
  own.insert(own.begin(), job.environment.begin(), job.environment.end());
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string> replaced = {"TORCHELASTIC_USE_AGENT_STORE", comm::kStoreSocket};
  for (const std::string& entry : own) replaced.insert(name_of(entry));
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!replaced.contains(name_of(*entry))) own.emplace_back(*entry);
  return own;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

void end_with_parent() {
  const char* const parent = std::getenv(kParent);
  if (parent == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != parent) ::raise(SIGKILL);
}

Result<RankProcesses> RankProcesses::start(const Job& job) {
  Descriptor listener;
  try {
    listener = Descriptor(comm::listen_at("127.0.0.1", 0));
  } catch (const WorldError& error) {
    return error.error();
  }
  RankProcesses processes;
  for (int rank = 0; rank < job.num_ranks; ++rank) {
    std::vector<std::string> arguments = {job.program};
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    std::vector<std::string> environment = environment_of(job, rank, listener);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (!job.output_prefix.empty()) {
      const std::string path = job.output_prefix + std::to_string(rank);
      ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0644);
    }
    if (rank == 0)  // onto itself: that alone lets it be inherited
      ::posix_spawn_file_actions_adddup2(&actions, listener, listener);
    pid_t pid = 0;
    // spawn, not fork: the caller may have threads that do not survive a fork (libgomp, autograd).
    const int status = ::posix_spawn(&pid, job.program.c_str(), &actions, nullptr,
                                     pointers(arguments).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (status != 0)
      return Error{Code::kUnsuitableEnvironment,
                   "cannot start " + job.program + ": " + std::strerror(status)};
    processes.pids_.push_back(pid);
    processes.endings_.emplace_back();
  }
  return processes;
}

RankProcesses::~RankProcesses() {
  for (std::size_t i = 0; i < pids_.size(); ++i) {
    if (endings_[i]) continue;
    ::kill(pids_[i], SIGKILL);
    ::waitpid(pids_[i], nullptr, 0);
  }
}

std::optional<RankProcesses::Ending> RankProcesses::wait(Rank rank, Deadline deadline) {
  if (endings_[rank.value]) return endings_[rank.value];
  // A pidfd becomes readable when the process ends, so a wait with a deadline needs no polling.
  const Descriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, pids_[rank.value], 0)));
  if (fd < 0) throw IoError({Code::kUnsuitableEnvironment, "pidfd_open: " + system_reason()});
  pollfd waiting{fd, POLLIN, 0};
  int ready = 0;
  do {
    const double milliseconds = std::clamp(1000 * deadline.remaining().value, 0.0, 2e9);
    ready = ::poll(&waiting, 1, static_cast<int>(milliseconds));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return std::nullopt;
  int status = 0;
  pid_t ended = 0;
  do ended = ::waitpid(pids_[rank.value], &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended < 0) throw IoError({Code::kUnsuitableEnvironment, "waitpid: " + system_reason()});
  Ending ending;
  if (WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  return endings_[rank.value] = ending;
}

bool RankProcesses::is_stopped(Rank rank) const {
  if (endings_[rank.value]) return false;
  std::ifstream file("/proc/" + std::to_string(pid(rank)) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");  // the name before it may hold anything
  return name_end != std::string::npos && (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

void RankProcesses::signal(Rank rank, int number) const {
  if (!endings_[rank.value]) ::kill(pid(rank), number);
}

}  // namespace lockstep::launch
