// The program of this build, run from a directory of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::cli {

struct Ran {
  int code = -1;  // exit code, or minus the signal
  std::string out, err;
};

// Started and still running; ended at the latest when it goes out of scope.
class Running {
 public:
  // `variables`, "NAME=value", are added to the environment of this process.
  explicit Running(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Reads what it prints until `text` has appeared; false when it ends, or time is up, before.
  bool wait_for(const std::string& text, Deadline deadline = Deadline::never());
  int pid() const { return pid_; }
  const std::string& told() const { return out_; }  // what was read so far
  void signal(int number) const;
  std::vector<int> children() const;    // ids of the processes it started, in that order
  void signal_child(int number) const;  // the last of them
  // err stays empty: both streams are in `out`. It is killed at the deadline.
  Ran finish(Deadline deadline = Deadline::never());

 private:
  // False at the end of what it prints, and when time is up.
  bool read_more(Deadline deadline);

  int pid_ = -1, fd_ = -1;
  std::string out_;
};

// Whether these processes have ended, or do so within seconds; any that does not is killed.
bool have_ended(const std::vector<int>& processes);

class Binary : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // `arguments` as a shell would see them, run inside dir_. Several threads may call it at once.
  Ran run(const std::string& arguments, const std::string& variables = "",
          const std::string& program = LOCKSTEP_BINARY);
  void write(const std::string& name, const std::string& text);

  std::filesystem::path dir_;

 private:
  std::atomic<int> runs_ = 0;
};

}  // namespace lockstep::cli
