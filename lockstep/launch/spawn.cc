#include "lockstep/launch/spawn.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

extern char** environ;

namespace lockstep::launch {
namespace {

// Free at this moment; the rank that binds it comes milliseconds later.
Result<int> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      fd >= 0 && ::bind(fd, generic, length) == 0 && ::getsockname(fd, generic, &length) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  if (!bound)
    return Error{Code::kUnsuitableEnvironment,
                 std::string("no free port: ") + std::strerror(reason), ""};
  return static_cast<int>(ntohs(address.sin_port));
}

std::vector<std::string> environment_of(const Job& job, int rank, int port) {
  const std::string size = std::to_string(job.num_ranks), number = std::to_string(rank);
  std::vector<std::string> own = {"RANK=" + number,        "WORLD_SIZE=" + size,
                                  "LOCAL_RANK=" + number,  "LOCAL_WORLD_SIZE=" + size,
                                  "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                                  "OMP_NUM_THREADS=1",     "MKL_NUM_THREADS=1"};
  own.insert(own.begin(), job.environment.begin(),
             job.environment.end());  // the first of a name counts
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string> replaced = {"TORCHELASTIC_USE_AGENT_STORE"};
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

Result<RankProcesses> RankProcesses::start(const Job& job) {
  const auto port = free_port();
  if (!port.ok()) return port.error();
  RankProcesses processes;
  for (int rank = 0; rank < job.num_ranks; ++rank) {
    std::vector<std::string> arguments = {job.program};
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    std::vector<std::string> environment = environment_of(job, rank, *port);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (!job.output_prefix.empty()) {
      const std::string path = job.output_prefix + std::to_string(rank);
      ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0644);
    }
    pid_t pid = 0;
    // spawn, not fork: the caller may have threads that do not survive a fork (libgomp, autograd).
    const int status = ::posix_spawn(&pid, job.program.c_str(), &actions, nullptr,
                                     pointers(arguments).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (status != 0)
      return Error{Code::kUnsuitableEnvironment,
                   "can not start " + job.program + ": " + std::strerror(status), ""};
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
  const auto place = static_cast<std::size_t>(rank.value);
  if (endings_[place]) return endings_[place];
  // A pidfd becomes readable when the process ends, so a wait with a deadline needs no polling.
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pids_[place], 0));
  if (fd < 0)
    throw IoError(
        {Code::kUnsuitableEnvironment, std::string("pidfd_open: ") + std::strerror(errno), ""});
  pollfd waiting{fd, POLLIN, 0};
  int ready = 0;
  do {
    const double milliseconds = std::clamp(1000 * deadline.remaining().value, 0.0, 2e9);
    ready = ::poll(&waiting, 1, static_cast<int>(milliseconds));
  } while (ready < 0 && errno == EINTR);
  ::close(fd);
  if (ready == 0) return std::nullopt;
  int status = 0;
  pid_t ended = 0;
  do ended = ::waitpid(pids_[place], &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended < 0)
    throw IoError(
        {Code::kUnsuitableEnvironment, std::string("waitpid: ") + std::strerror(errno), ""});
  Ending ending;
  if (WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  return endings_[place] = ending;
}

void RankProcesses::signal(Rank rank, int number) const {
  if (!endings_[static_cast<std::size_t>(rank.value)]) ::kill(pid(rank), number);
}

}  // namespace lockstep::launch
