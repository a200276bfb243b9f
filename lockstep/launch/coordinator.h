// Decides for all hosts of a job when its ranks start, when they end, and whether they start again.
// A start is a generation: it has a number and a store of its own, so that no rank of an earlier
// one is taken for one of its own. Knows messages and nothing of connections.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::launch {

// Of ranks and launchers, as the command line has them.
inline constexpr int kExitUsage = 2, kExitEnvironment = 3, kExitFailed = 4, kExitStopped = 143;

// How a job ends.
struct Verdict {
  int exit_code = 0;
  std::optional<Error> error = {};
};
Json to_json(const Verdict& verdict);
Verdict verdict_of(const Json& message);

struct Policy {
  int hosts = 1;
  int ranks = 1;  // of the job
  int max_restarts = 0;
  Seconds wait = {300};   // for hosts that have not come, or were lost and may come again
  std::string address;    // by which ranks reach rank 0's host
  Seconds backoff = {1};  // before a second restart without progress; then twice as long each time
  std::function<std::int64_t()> newest_checkpoint;  // its step; negative: there is none
};

// Restarts in a row without progress, a newer checkpoint or a later step, after which it gives up.
inline constexpr int kMostInVain = 3;

// One thread.
class Coordinator {
 public:
  using Send = std::function<void(int host, const Json& message)>;
  using Tell = std::function<void(const std::string&)>;
  Coordinator(Policy policy, Send send, Tell tell);

  // A host has come, with the message "hello". Refuses one that means another job.
  Result<void> join(int host, const Json& hello);
  // What a host that has come says; what makes no sense, or is of an earlier generation, is passed
  // over.
  void hear(int host, const Json& message);
  void lose(int host, const std::string& why);
  void tick();                           // several times a second
  void give_up(const Verdict& verdict);  // ends the job at once
  bool is_over() const { return state_ == State::kOver; }

 private:
  enum class State : std::uint8_t { kGathering, kRunning, kEnding, kOver };
  struct Member {
    bool is_here = false, runs = false;
    std::string name;
    int ranks = 0;
  };
  // A reason for which a generation ended, and how much it explains: more than those below it.
  enum class Weight : std::uint8_t { kExit, kSignal, kHost };
  struct Reason {
    Weight weight = Weight::kExit;
    int exit_code = kExitFailed;
    Error error;  // who, where, how
    std::optional<Error> said = {};
  };

  std::string name_of(int host) const;
  void start();
  void end();
  void fail(Reason reason);
  void take_failure(int host, const Json& message);
  void conclude();
  void restart_or_not();
  void over(Verdict verdict);
  void everyone(const Json& message);
  bool any_runs() const;
  std::vector<int> missing() const;

  const Policy policy_;
  const Send send_;
  const Tell tell_;
  State state_ = State::kGathering;
  std::vector<Member> members_;
  std::int64_t generation_ = 0, steps_ = 0, progress_ = 0;
  int restarts_ = 0, in_vain_ = 0;
  bool asked_to_stop_ = false, stopped_ = false;
  std::optional<Reason> reason_;       // of the end of this generation
  std::optional<Reason> last_reason_;  // of the one before
  Deadline not_before_, gathered_by_, tell_missing_;
  Descriptor store_;  // listens for rank 0 of this generation
};

}  // namespace lockstep::launch
