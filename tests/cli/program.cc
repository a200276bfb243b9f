#include "tests/cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace lockstep::cli {
namespace {

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> found;
  for (std::string& text : texts) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

// One that nobody has waited for yet has ended too.
bool has_ended(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X';
}

}  // namespace

Running::Running(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& variables) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  fd_ = ends[0];
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> words = {LOCKSTEP_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> settings = variables;  // the first of a name counts
  for (char** entry = environ; *entry != nullptr; ++entry) settings.emplace_back(*entry);
  EXPECT_EQ(::posix_spawn(&pid_, LOCKSTEP_BINARY, &actions, nullptr, pointers(words).data(),
                          pointers(settings).data()),
            0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
}

Running::~Running() {
  if (pid_ > 0) {
    for (int i = 0; i < 2; ++i) ::kill(pid_, SIGTERM);  // twice, so that it ends its ranks at once
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(fd_);
}

bool Running::read_more(Deadline deadline) {
  pollfd waiting = {fd_, POLLIN, 0};
  const double milliseconds = std::clamp(1000 * deadline.remaining().value, 0.0, 2e9);
  if (::poll(&waiting, 1, static_cast<int>(milliseconds)) <= 0) return false;
  char buffer[4096];
  const auto got = ::read(fd_, buffer, sizeof buffer);
  if (got <= 0) return false;
  out_.append(buffer, static_cast<std::size_t>(got));
  return true;
}

bool Running::wait_for(const std::string& text, Deadline deadline) {
  while (out_.find(text) == std::string::npos)
    if (!read_more(deadline)) return false;
  return true;
}

void Running::signal(int number) const { ::kill(pid_, number); }

std::vector<int> Running::children() const {
  const std::string task = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_);
  std::ifstream file(task + "/children");
  std::vector<int> found;
  for (int child = 0; file >> child;) found.push_back(child);
  return found;
}

void Running::signal_child(int number) const {
  const std::vector<int> all = children();
  ASSERT_FALSE(all.empty());
  ::kill(all.back(), number);
}

Ran Running::finish(Deadline deadline) {
  while (read_more(deadline)) {
  }
  if (deadline.expired()) ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return {code_of(status), out_, ""};
}

bool have_ended(const std::vector<int>& processes) {
  const Deadline deadline = Deadline::after(Seconds{10});
  const auto all = [&] { return std::ranges::all_of(processes, has_ended); };
  while (!all() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (all()) return true;
  for (const int process : processes)
    if (!has_ended(process)) ::kill(process, SIGKILL);
  return false;
}

void Binary::SetUp() {
  dir_ = std::filesystem::temp_directory_path() /
         ("lockstep_cli_" + std::to_string(::getpid()) + "_" +
          testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::create_directories(dir_);
}

void Binary::TearDown() { std::filesystem::remove_all(dir_); }

Ran Binary::run(const std::string& arguments, const std::string& variables,
                const std::string& program) {
  const std::string errors = "stderr" + std::to_string(++runs_) + ".txt";
  const std::string command = "cd " + dir_.string() + " && env -u NO_COLOR -u FORCE_COLOR " +
                              "-u CLICOLOR_FORCE " + variables + " " + program + " " + arguments +
                              " 2>" + errors;
  Ran ran;
  FILE* pipe = popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) ran.out += static_cast<char>(c);
  ran.code = code_of(pclose(pipe));
  std::ifstream file(dir_ / errors, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  ran.err = text.str();
  return ran;
}

void Binary::write(const std::string& name, const std::string& text) {
  std::ofstream(dir_ / name, std::ios::binary) << text;
}

}  // namespace lockstep::cli
