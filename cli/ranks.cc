#include "cli/ranks.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::cli {
namespace {

using Ending = launch::RankProcesses::Ending;

// For ranks to end by themselves after the first has failed, and where a signal ended that one. They
// notice within a second; but where it died before it came, they wait for it.
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
      : job_(job), endings_(ranks), err_(err) {}

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

  // The first rank that failed; one that a signal ended, if there is any.
  std::optional<Rank> culprit() const { return culprit_; }
  const Ending& ending(Rank rank) const { return *endings_[static_cast<std::size_t>(rank.value)]; }

 private:
  // Notes who has ended; some rank that has not, if there is one.
  std::optional<Rank> look() {
    std::optional<Rank> running;
    for (std::size_t i = 0; i < endings_.size(); ++i) {
      const Rank rank{static_cast<int>(i)};
      if (endings_[i]) continue;
      endings_[i] = job_.wait(rank, Deadline::after(Seconds{0}));
      if (!endings_[i])
        running = rank;
      else if (!endings_[i]->ok())
        note_failure(rank);
    }
    return running;
  }

  void note_failure(Rank rank) {
    if (!culprit_ || (ending(*culprit_).exit_code && !ending(rank).exit_code)) culprit_ = rank;
    if (patience_.is_never())
      patience_ = Deadline::after(ending(rank).exit_code ? kPatience : kPatienceWithTheDead);
  }

  // A rank that stands still is named, and does not keep those from ending who were asked to.
  void look_for_stopped() {
    for (std::size_t i = 0; i < endings_.size(); ++i) {
      const Rank rank{static_cast<int>(i)};
      if (endings_[i] || !job_.is_stopped(rank)) continue;
      if (told_stopped_.insert(rank).second)
        err_ << "lockstep: rank " << i << " (process " << job_.pid(rank) << ") is stopped"
             << std::endl;
      if (stop && patience_.is_never()) patience_ = Deadline::after(kPatience);
    }
  }

  void pass_on() {
    for (std::size_t i = 0; i < endings_.size(); ++i)
      job_.signal(Rank{static_cast<int>(i)}, SIGUSR1);
    passed_on_ = true;
  }

  launch::RankProcesses& job_;
  std::vector<std::optional<Ending>> endings_;
  std::optional<Rank> culprit_;
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

std::string own_command() {
  std::string text = "lockstep";
  for (const std::string& word : own_words()) {
    const bool is_plain = word.find_first_of(" '\"$*?[]{}<>|&;()`\\") == std::string::npos;
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += is_plain ? " " + word : " '" + quoted + "'";
  }
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
  if (!watch.culprit()) return all_ended ? ExitCode::kOk : ExitCode::kTerminated;
  const Rank rank = *watch.culprit();
  const Ending& ending = watch.ending(rank);
  if (ending.exit_code) return static_cast<ExitCode>(*ending.exit_code);
  if (stop) return ExitCode::kTerminated;
  return fail(output, Error{Code::kPeerLost,
                            join_parts("rank ", rank.value, " was ended by signal ", ending.signal,
                                       " (", ::strsignal(ending.signal), ")"),
                            ending.signal == SIGKILL ? "did this machine run out of memory?" : ""});
}

void run_on_ranks(comm::World* world, int threads, const std::function<void(comm::World&)>& body) {
  if (world != nullptr)
    body(*world);
  else
    comm::run_local(threads, body);
}

}  // namespace lockstep::cli
