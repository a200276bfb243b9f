// The program of this build, run from a directory of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Ran {
  int code = -1;  // exit code, or minus the signal
  std::string out, err;
};

// Started and still running; ended at the latest when it goes out of scope.
class Running {
 public:
  explicit Running(const std::vector<std::string>& arguments);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Reads what it prints until `text` has appeared; false when it ends before.
  bool wait_for(const std::string& text);
  void signal(int number) const;
  void signal_child(int number) const;  // the last process it started
  Ran finish();                         // err stays empty: both streams are in `out`

 private:
  int pid_ = -1, fd_ = -1;
  std::string out_;
};

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
