// What a rank tells the launcher that started it, through a pipe that it inherits: how far it is,
// and why it ends. Nothing where no launcher started it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::launch {

inline constexpr const char* kReports = "LOCKSTEP_REPORTS";  // the descriptor

// Never waits: what does not fit into the pipe is lost. Any thread.
void report_step(std::int64_t steps);  // done, of the whole run
void report_error(const Error& error);

// The launcher's end of the pipe of one rank.
class Reports {
 public:
  // Takes what has come; `fd` is not waited for. Lines that no rank writes are passed over.
  void read(int fd);
  std::int64_t steps() const { return steps_; }                 // the most; 0: none yet
  const std::optional<Error>& error() const { return error_; }  // the first
  bool ended() const { return ended_; }                         // nobody has the other end any more

 private:
  void take(std::string_view line);

  std::string text_;  // of a line that has not ended
  std::int64_t steps_ = 0;
  std::optional<Error> error_;
  bool ended_ = false;
};

}  // namespace lockstep::launch
