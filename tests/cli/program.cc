#include "tests/cli/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

extern char** environ;

namespace lockstep::cli {
namespace {

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

Running::Running(const std::vector<std::string>& arguments) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  fd_ = ends[0];
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> words = {LOCKSTEP_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(::posix_spawn(&pid_, LOCKSTEP_BINARY, &actions, nullptr, pointers.data(), environ), 0);
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

bool Running::wait_for(const std::string& text) {
  char buffer[4096];
  while (out_.find(text) == std::string::npos) {
    const auto got = ::read(fd_, buffer, sizeof buffer);
    if (got <= 0) return false;
    out_.append(buffer, static_cast<std::size_t>(got));
  }
  return true;
}

void Running::signal(int number) const { ::kill(pid_, number); }

void Running::signal_child(int number) const {
  const std::string task = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_);
  std::ifstream file(task + "/children");
  int last = -1;
  for (int child = 0; file >> child;) last = child;
  ASSERT_GT(last, 0);
  ::kill(last, number);
}

Ran Running::finish() {
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(fd_, buffer, sizeof buffer)) > 0;)
    out_.append(buffer, static_cast<std::size_t>(got));
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return {code_of(status), out_, ""};
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
