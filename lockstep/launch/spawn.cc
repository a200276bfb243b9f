#include "lockstep/launch/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
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

#include "lockstep/base/check.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/comm/address.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/launch/channel.h"
#include "lockstep/launch/report.h"
#include "lockstep/launch/spares.h"

extern char** environ;

namespace lockstep::launch {
namespace {

constexpr const char* kParent = "LOCKSTEP_LAUNCHER";  // its process id

// What tells a process which rank it is.
std::vector<std::string> place_of(const Job& job, const Place& place, int rank) {
  const std::string number = std::to_string(rank);
  return {"RANK=" + std::to_string(place.first_rank + rank),
          "WORLD_SIZE=" + std::to_string(place.world_size),
          "LOCAL_RANK=" + number,
          "LOCAL_WORLD_SIZE=" + std::to_string(job.num_ranks),
          "MASTER_ADDR=" + place.host,
          "MASTER_PORT=" + std::to_string(place.port)};
}

// All of a process: the first of a name counts.
std::vector<std::string> environment_of(const Start& start, int report, int page) {
  std::vector<std::string> own = start.environment;
  for (const auto& [name, value] : {std::pair{kReports, report}, std::pair{kPage, page},
                                    std::pair{kParent, static_cast<int>(::getpid())}})
    own.push_back(join_parts(name, "=", value));
  for (const char* threads : {"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"}) own.emplace_back(threads);
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string> replaced = {"TORCHELASTIC_USE_AGENT_STORE", comm::kStoreSocket, kSecret,
                                    kSpare};
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

FileActions& fill(FileActions& actions, const Start& start, int report, int page) {
  if (!start.output_path.empty()) actions.open(STDOUT_FILENO, start.output_path);
  actions.as(start.output.out, STDOUT_FILENO);
  actions.as(start.output.err, STDERR_FILENO);
  for (const int descriptor : start.inherited) actions.inherit(descriptor);
  actions.inherit(report);
  actions.inherit(page);
  return actions;
}

}  // namespace

void end_with_parent() {
  const char* const parent = std::getenv(kParent);
  if (parent == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != parent) ::raise(SIGKILL);
}

Result<Process> start_process(const Start& start) {
  Process made;
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Error{Code::kUnsuitableEnvironment, "cannot make a pipe: " + system_reason()};
  made.reports = Descriptor(ends[0]);
  const Descriptor report(ends[1]);
  made.page = LS_TRY(Page::make());
  std::vector<std::string> arguments = {start.program};
  arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
  std::vector<std::string> environment = environment_of(start, report, made.page->descriptor());
  FileActions actions;
  // spawn, not fork: the caller may have threads that do not survive a fork (libgomp, autograd).
  const int status = ::posix_spawn(
      &made.pid, start.program.c_str(), fill(actions, start, report, made.page->descriptor()).get(),
      nullptr, pointers(arguments).data(), pointers(environment).data());
  if (status != 0)
    return Error{Code::kUnsuitableEnvironment,
                 "cannot start " + start.program + ": " + std::strerror(status)};
  made.pidfd = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, made.pid, 0)));
  if (made.pidfd < 0) {
    const std::string reason = system_reason();
    ::kill(made.pid, SIGKILL);
    ::waitpid(made.pid, nullptr, 0);
    return Error{Code::kUnsuitableEnvironment, "pidfd_open: " + reason};
  }
  return made;
}

Result<RankProcesses> RankProcesses::start(const Job& job, Spares* spares) {
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
  RankProcesses processes;
  processes.deaths_ = std::make_shared<Descriptor>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (*processes.deaths_ < 0)
    return Error{Code::kUnsuitableEnvironment, "cannot make an eventfd: " + system_reason()};
  for (int rank = 0; rank < job.num_ranks; ++rank) {
    Start start = {job.program, job.arguments, place_of(job, place, rank)};
    // The first of a name counts.
    start.environment.insert(start.environment.begin(), job.environment.begin(),
                             job.environment.end());
    if (!job.output_prefix.empty()) start.output_path = job.output_prefix + std::to_string(rank);
    if (!job.outputs.empty()) start.output = job.outputs[rank];
    if (place.first_rank + rank == 0) {
      start.environment.push_back(join_parts(comm::kStoreSocket, "=", place.store_socket));
      start.inherited = {place.store_socket};
    }
    if (spares != nullptr)
      if (auto spare = spares->take(start)) {
        processes.ranks_.push_back(*std::move(spare));
        continue;
      }
    processes.ranks_.push_back(LS_TRY(start_process(start)));
  }
  return processes;
}

void RankProcesses::watch_page(Rank rank) {
  Process& process = ranks_[rank.value];
  if (process.ending || process.page->is_watched() || !process.page->look().holds) return;
  process.page->watch([died = process.died.get(), deaths = deaths_] {
    *died = true;
    const std::uint64_t one = 1;
    (void)!::write(*deaths, &one, sizeof one);
  });
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

char RankProcesses::state(Rank rank) const {
  if (ranks_[rank.value].ending) return 0;
  std::ifstream file("/proc/" + std::to_string(pid(rank)) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");  // the name before it may hold anything
  return name_end == std::string::npos ? '\0' : text[name_end + 2];
}

void RankProcesses::signal(Rank rank, int number) const {
  if (!ranks_[rank.value].ending) ::kill(pid(rank), number);
}

}  // namespace lockstep::launch
