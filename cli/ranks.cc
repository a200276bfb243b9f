#include "cli/ranks.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::cli {
namespace {

using Ending = launch::RankProcesses::Ending;

// For ranks to end by themselves after the first has failed, and where a signal ended that one.
// They notice within a second; but where it died before it came, they wait for it.
constexpr Seconds kPatience = {5}, kPatienceWithTheDead = {1.5};

std::atomic<bool> stop = false;
std::atomic<int> times_asked = 0;
std::atomic<bool> has_ranks = false;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  stop = true;
  if (number == SIGUSR1 || ++times_asked < 2 || has_ranks) return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

class Watch {
 public:
  Watch(launch::RankProcesses& job, int ranks, std::ostream& err)
      : job_(job), ranks_(ranks), err_(err) {}

  // False when not all ranks ended by themselves.
  bool wait_for_all() {
    while (const std::optional<Rank> running = look()) {
      if (times_asked >= 2 || patience_.expired()) return false;
      look_for_stopped();
      if (stop && !passed_on_) pass_on();
      job_.wait(*running, Deadline::after(Seconds{0.1}));
    }
    return true;
  }

  // Of the first rank that failed, or of one that a signal ended, if there is any.
  const std::optional<std::pair<Rank, Ending>>& failure() const { return failure_; }

 private:
  // Notes who has ended; some rank that has not, if there is one.
  std::optional<Rank> look() {
    std::optional<Rank> running;
    for (Rank rank{0}; rank.value < ranks_; ++rank.value) {
      const std::optional<Ending> ending = job_.wait(rank, Deadline::after(Seconds{0}));
      if (!ending)
        running = rank;
      else if (!ending->ok())
        note_failure(rank, *ending);
    }
    return running;
  }

  void note_failure(Rank rank, const Ending& ending) {
    if (!failure_ || (failure_->second.exit_code && !ending.exit_code)) failure_ = {rank, ending};
    if (patience_.is_never())
      patience_ = Deadline::after(ending.exit_code ? kPatience : kPatienceWithTheDead);
  }

  // A rank that stands still is named, and does not keep those from ending who were asked to.
  void look_for_stopped() {
    for (Rank rank{0}; rank.value < ranks_; ++rank.value) {
      if (!job_.is_stopped(rank)) continue;
      if (told_stopped_.insert(rank).second)
        err_ << "lockstep: rank " << rank.value << " (process " << job_.pid(rank) << ") is stopped"
             << std::endl;
      if (stop && patience_.is_never()) patience_ = Deadline::after(kPatience);
    }
  }

  void pass_on() {
    for (int rank = 0; rank < ranks_; ++rank) job_.signal(Rank{rank}, SIGUSR1);
    passed_on_ = true;
  }

  launch::RankProcesses& job_;
  const int ranks_;
  std::optional<std::pair<Rank, Ending>> failure_;
  Deadline patience_ = Deadline::never();
  bool passed_on_ = false;
  std::set<Rank> told_stopped_;
  std::ostream& err_;
};

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, on_signal);
  // What nohup ignores stays ignored.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  return stop;
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string own_command() {
  std::string text = "lockstep";
  for (const std::string& word : own_words()) text += " " + shell_word(word);
  return text;
}

bool is_rank() { return comm::process_environment("RANK").has_value(); }

ExitCode run_as_processes(int ranks, Output& output) {
  has_ranks = true;
  stop_on_signals();
  auto job = launch::RankProcesses::start({"/proc/self/exe", own_words(), ranks, {}, ""});
  if (!job.ok()) return fail(output, job.error());
  Watch watch(*job, ranks, output.err);
  const bool all_ended = watch.wait_for_all();
  if (!watch.failure()) return all_ended ? ExitCode::kOk : ExitCode::kTerminated;
  const auto& [rank, ending] = *watch.failure();
  if (ending.exit_code) return static_cast<ExitCode>(*ending.exit_code);
  if (stop) return ExitCode::kTerminated;
  return fail(output, Error{Code::kPeerLost,
                            join_parts("rank ", rank.value, " was ended by signal ", ending.signal,
                                       " (", ::strsignal(ending.signal), ")"),
                            ending.signal == SIGKILL ? "did this machine run out of memory?" : ""});
}

Result<void> check_on_cpu(const spec::Spec& spec, const std::string& verb) {
  if (spec.device == DeviceKind::kCpu) return {};
  return Error{Code::kUnsuitableEnvironment,
               join_parts("device.kind = ", to_text(spec.device), ", and `lockstep ", verb,
                          "` runs on CPUs alone"),
               "add --set device.kind=cpu"};
}

void run_on_ranks(comm::World* world, int threads, const std::function<void(comm::World&)>& body) {
  if (world != nullptr)
    body(*world);
  else
    comm::run_local(threads, body);
}

}  // namespace lockstep::cli
