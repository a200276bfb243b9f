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
#include "lockstep/launch/channel.h"
#include "lockstep/launch/report.h"

extern char** environ;

namespace lockstep::launch {
namespace {

constexpr const char* kParent = "LOCKSTEP_LAUNCHER";  // its process id

std::vector<std::string> environment_of(const Job& job, const Place& place, int rank, int report) {
  const std::string number = std::to_string(rank);
  std::vector<std::string> own = {"RANK=" + std::to_string(place.first_rank + rank),
                                  "WORLD_SIZE=" + std::to_string(place.world_size),
                                  "LOCAL_RANK=" + number,
                                  "LOCAL_WORLD_SIZE=" + std::to_string(job.num_ranks),
                                  "MASTER_ADDR=" + place.host,
                                  "MASTER_PORT=" + std::to_string(place.port),
                                  "OMP_NUM_THREADS=1",
                                  "MKL_NUM_THREADS=1",
                                  kReports + ("=" + std::to_string(report)),
                                  kParent + ("=" + std::to_string(::getpid()))};
  if (place.first_rank + rank == 0)
    own.push_back(comm::kStoreSocket + ("=" + std::to_string(place.store_socket)));
  // The first of a name counts.
  own.insert(own.begin(), job.environment.begin(), job.environment.end());
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string> replaced = {"TORCHELASTIC_USE_AGENT_STORE", comm::kStoreSocket, kSecret};
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

// Which descriptors and files a process begins with.
class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void open(int fd, const std::string& path) {
    ::posix_spawn_file_actions_addopen(&actions_, fd, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                       0644);
  }
  // Onto itself: that alone lets it be inherited.
  void inherit(int fd) { as(fd, fd); }
  void as(int fd, int other) {
    if (fd >= 0) ::posix_spawn_file_actions_adddup2(&actions_, fd, other);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

FileActions& fill(FileActions& actions, const Job& job, const Place& place, int rank, int report) {
  if (!job.output_prefix.empty())
    actions.open(STDOUT_FILENO, job.output_prefix + std::to_string(rank));
  if (!job.outputs.empty()) {
    actions.as(job.outputs[rank].out, STDOUT_FILENO);
    actions.as(job.outputs[rank].err, STDERR_FILENO);
  }
  if (place.first_rank + rank == 0) actions.inherit(place.store_socket);
  actions.inherit(report);
  return actions;
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
  Place place = job.place.value_or(Place{0, job.num_ranks, "127.0.0.1"});
  if (!job.place) {
    try {
      listener = Descriptor(comm::listen_at(place.host, 0));
    } catch (const WorldError& error) {
      return error.error();
    }
    place.store_socket = listener;
    place.port = comm::port_of(listener);
  }
  std::vector<std::string> arguments = {job.program};
  arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
  RankProcesses processes;
  for (int rank = 0; rank < job.num_ranks; ++rank) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      return Error{Code::kUnsuitableEnvironment, "cannot make a pipe: " + system_reason()};
    Descriptor reports(ends[0]);
    const Descriptor report(ends[1]);
    std::vector<std::string> environment = environment_of(job, place, rank, report);
    FileActions actions;
    pid_t pid = 0;
    // spawn, not fork: the caller may have threads that do not survive a fork (libgomp, autograd).
    const int status =
        ::posix_spawn(&pid, job.program.c_str(), fill(actions, job, place, rank, report).get(),
                      nullptr, pointers(arguments).data(), pointers(environment).data());
    if (status != 0)
      return Error{Code::kUnsuitableEnvironment,
                   "cannot start " + job.program + ": " + std::strerror(status)};
    processes.ranks_.push_back({pid, Descriptor(), std::move(reports)});
    Descriptor& pidfd = processes.ranks_.back().pidfd;
    pidfd = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd < 0) return Error{Code::kUnsuitableEnvironment, "pidfd_open: " + system_reason()};
  }
  return processes;
}

RankProcesses::~RankProcesses() {
  for (const Process& process : ranks_)
    if (!process.ending) ::kill(process.pid, SIGKILL);
  for (const Process& process : ranks_)
    if (!process.ending) ::waitpid(process.pid, nullptr, 0);
}

std::optional<RankProcesses::Ending> RankProcesses::wait(Rank rank, Deadline deadline) {
  Process& process = ranks_[rank.value];
  if (process.ending) return process.ending;
  // A pidfd becomes readable when the process ends, so a wait with a deadline needs no polling.
  pollfd waiting{process.pidfd, POLLIN, 0};
  int ready = 0;
  do {
    const double milliseconds = std::clamp(1000 * deadline.remaining().value, 0.0, 2e9);
    ready = ::poll(&waiting, 1, static_cast<int>(milliseconds));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return std::nullopt;
  int status = 0;
  pid_t ended = 0;
  do ended = ::waitpid(process.pid, &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended < 0) throw IoError({Code::kUnsuitableEnvironment, "waitpid: " + system_reason()});
  Ending ending;
  if (WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  return process.ending = ending;
}

bool RankProcesses::is_stopped(Rank rank) const {
  if (ranks_[rank.value].ending) return false;
  std::ifstream file("/proc/" + std::to_string(pid(rank)) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");  // the name before it may hold anything
  return name_end != std::string::npos && (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

void RankProcesses::signal(Rank rank, int number) const {
  if (!ranks_[rank.value].ending) ::kill(pid(rank), number);
}

}  // namespace lockstep::launch
