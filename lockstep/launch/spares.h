// Processes that have loaded what ranks need and wait to be told which rank they are, so that a
// start of a job need not wait for that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/spawn.h"

namespace lockstep::launch {

inline constexpr const char* kSpare = "LOCKSTEP_SPARE";  // the descriptor, for a spare

// Lets people tell a spare from ranks, by its name in ps and top. First of all.
void be_called_spare();

// In a spare, waits until it is told its place; its environment, output and sockets are then those
// of a rank that was just started. False when the launcher has no use for it any more. Elsewhere it
// returns true at once.
bool await_place();

// The launcher's. Those not taken are killed when it is destroyed. One thread, which as the parent
// lives as long as the process.
class Spares {
 public:
  Spares(std::string program, std::vector<std::string> arguments)
      : program_(std::move(program)), arguments_(std::move(arguments)) {}
  ~Spares();
  Spares(Spares&&) = delete;

  // Starts one if there are fewer than `wanted`, at most four times a second, so that ranks that
  // run are not held up by many that load at once.
  void prepare(int wanted);
  // One that lives, told to be what `start` says; nothing when there is none.
  std::optional<Process> take(const Start& start);
  const std::vector<std::string>& arguments() const { return arguments_; }
  int size() const { return static_cast<int>(waiting_.size()); }

 private:
  struct Spare {
    Process process;
    Descriptor line;
  };
  static void end(Process& process);

  const std::string program_;
  const std::vector<std::string> arguments_;
  std::vector<Spare> waiting_;
  Deadline next_ = Deadline::after({0});
  int failed_ = 0;  // one after the other: it is given up
};

}  // namespace lockstep::launch
