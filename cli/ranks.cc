#include "cli/ranks.h"

#include <csignal>
#include <fstream>
#include <ostream>
#include <vector>

#include "cli/parse.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::cli {
namespace {

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

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, on_signal);
  // What nohup ignores stays ignored.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  return stop;
}

std::string own_command() {
  std::string text = "lockstep";
  for (const std::string& word : own_words()) text += " " + shell_word(word);
  return text;
}

bool is_rank() { return comm::process_environment("RANK").has_value(); }

launch::Asked as_launcher() {
  has_ranks = true;
  return {stop_on_signals(), times_asked};
}

ExitCode run_as_processes(int ranks, Output& output) {
  const launch::Asked asked = as_launcher();
  const auto outcome = launch::run_ranks(
      {"/proc/self/exe", own_words(), ranks, {}, ""}, asked,
      [&](const std::string& text) { output.err << "lockstep: " << text << std::endl; });
  if (!outcome.ok()) return fail(output, outcome.error());
  if (!outcome->failure) return outcome->stopped ? ExitCode::kTerminated : ExitCode::kOk;
  const launch::Failure& failure = *outcome->failure;
  if (failure.ending.exit_code) return static_cast<ExitCode>(*failure.ending.exit_code);
  if (stop) return ExitCode::kTerminated;
  return fail(output,
              Error{Code::kPeerLost, join_parts("rank ", failure.rank, " ", failure.how()),
                    failure.ending.signal == SIGKILL ? "did this machine run out of memory?" : ""});
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
