// Looks after the ranks of this machine until all have ended: who ended how, what they said, who
// stands still, and whose time is up.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/report.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/launch/stillness.h"

namespace lockstep::launch {

// What people and schedulers ask of a launcher, by signals: to stop, and how often.
struct Asked {
  const std::atomic<bool>& stop;
  const std::atomic<int>& times;
};

// The first rank that failed, or one that a signal ended if there is any.
struct Failure {
  int rank = 0;  // of the job
  pid_t process = 0;
  RankProcesses::Ending ending;
  std::optional<Error> said = {};  // by that rank, else by the first other that said why it ends
  std::string found = {};          // "was stopped for 2.1 s": why its launcher killed it
  std::string where = {};          // "in step 15 at B of unit 3, microbatch 1"; empty: not known

  std::string how() const;  // "was ended by signal 9 (Killed) in step 15 at ..."
};

// One thread. `ranks` must outlive it.
class Watch {
 public:
  using Tell = std::function<void(const std::string&)>;

  // What happens to ranks of which one is lost or stands still. kPatient: those left say why they
  // end, and nobody who stands still is killed. kAtOnce: the job starts again anyway, and pages
  // tell where each rank was; so all are killed, and so is one that stands still.
  enum class Manner : std::uint8_t { kPatient, kAtOnce };

  // `first`: the number in the job of the first rank here.
  Watch(RankProcesses& ranks, int first, Tell tell, Manner manner = Manner::kPatient);

  // What has come: to be called when one of these is readable, and several times a second, because
  // a rank that is stopped tells nobody. Kills those that should have ended by themselves.
  void look();
  std::vector<pollfd> descriptors() const;

  // Passes on, once, that the job shall stop.
  void ask_to_stop();
  // The job has failed elsewhere: those here may find out, for a moment.
  void end_soon();
  bool all_have_stepped() const;  // each rank here is behind its first step
  void kill();

  bool all_ended() const { return running_ == 0; }
  bool killed() const { return killed_; }    // some rank did not end by itself
  bool stopped() const { return stopped_; }  // all have ended, and some because it was asked to
  const std::optional<Failure>& failure() const { return failure_; }
  std::int64_t steps() const;  // that any rank has told

 private:
  void look_for_deaths();
  void look_for_endings();
  void look_at_ranks();
  void look_at(int rank, Seconds late);
  void name_slow();
  void note(int rank, const RankProcesses::Ending& ending);
  void hear();
  std::string name_of(int rank) const;
  std::string where(int rank) const;

  RankProcesses& ranks_;
  const int first_;
  const Tell tell_;
  const Manner manner_;
  std::vector<Reports> reports_;
  std::vector<Stillness> stillness_;
  std::vector<std::string> found_;  // of a rank that was killed, why
  Slowness slowness_;
  std::optional<SteadyPoint> looked_;
  std::vector<bool> ended_;
  int running_;
  std::optional<Failure> failure_;
  std::set<int> dying_;  // known by their pages; the first of them counts
  std::optional<int> first_dead_;
  Deadline patience_ = Deadline::never(), next_look_ = Deadline::after({0});
  bool asked_ = false, killed_ = false, stopped_ = false;
  bool said_ = false;     // some rank, why it ends
  bool in_vain_ = false;  // what the ranks here do is lost anyway
  std::set<int> told_stopped_;
};

// Runs all ranks of a job on this machine until they have ended. What came of it.
struct Outcome {
  std::optional<Failure> failure;
  bool stopped = false;  // as asked
};
Result<Outcome> run_ranks(const Job& job, const Asked& asked, const Watch::Tell& tell);

}  // namespace lockstep::launch
