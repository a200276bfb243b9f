// What the ranks of this machine print, in a file for each: rank-3.log of a folder, to which every
// start of the job adds. What rank 0 prints also goes where its launcher prints.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/launch/spawn.h"

namespace lockstep::launch {

// Copies on a thread of its own until it is destroyed. A file that cannot be written, on a full
// disk, is told of once and ends no rank: what it would have held is lost.
class Logs {
 public:
  // `heading` is a line in front of what a start of the job prints. `first` as Watch has it.
  // Refuses a folder in which files cannot be made.
  static Result<void> check(const std::string& folder);
  Logs(const std::string& folder, int first, int ranks, const std::string& heading,
       std::function<void(const std::string&)> tell);
  ~Logs();
  Logs(Logs&&) = delete;

  // For Job::outputs; to be closed, by started(), when the ranks have them.
  const std::vector<Job::Output>& outputs() const { return outputs_; }
  void started();

 private:
  struct Copy {
    Descriptor from;
    std::size_t file = 0;
    int terminal = -1;  // this process's own stdout or stderr
  };
  struct File {
    std::string path;
    Descriptor descriptor = Descriptor();
    bool failed = false;
  };
  int pipe_to(std::size_t file, int terminal);
  void run();
  bool copy(const Copy& copy);  // false at its end
  void write(File& file, const char* bytes, std::size_t size);

  const std::function<void(const std::string&)> tell_;
  std::vector<File> files_;
  std::vector<Copy> copies_;
  std::vector<Job::Output> outputs_;
  std::vector<Descriptor> theirs_;  // the ranks' ends
  Descriptor stop_, stopped_;       // a pipe, closed to end the thread
  std::thread thread_;
};

}  // namespace lockstep::launch
