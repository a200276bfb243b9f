// Who is to blame when a collective fails. Gloo reports that some connection broke or that time ran
// out, never which rank caused it: usually the messenger is another survivor. So each rank leaves a
// progress word in the store every 100 ms: that it lives, where it is, and whom it waits for. The
// first survivor to fail follows those words from the peer that failed it to a rank that no longer
// writes, or that waits for nobody, and publishes the verdict; all others adopt it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/ids.h"
#include "lockstep/comm/c10d/store.h"
#include "lockstep/comm/position.h"
#include "lockstep/comm/progress_word.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

// Any thread may call it.
class ProgressBoard {
 public:
  // Called once, on a thread of the board, when this rank learns of a failure that it did not find
  // itself: what another rank has found, a store that is gone, a rank that was silent for too long.
  using OnVerdict = std::function<void(const Blame&)>;
  // Called on a thread of rank 0's board, for a rank that shows no sign of life while the job runs.
  using OnSilence = std::function<void(Rank, Seconds)>;

  // On connections of its own to the store; starts writing, `position` with it where there is one.
  // Throws std::exception when it cannot.
  ProgressBoard(const Store& store, const Rendezvous& rendezvous, Deadline deadline,
                std::shared_ptr<const PositionCell> position = nullptr, OnVerdict on_verdict = {});
  // The rank that hosts the store stays up to 0.8 s, until the others have left or, after a
  // failure, know the verdict.
  ~ProgressBoard();

  // Says that this rank waits for `peer` in an operation, for as long as the object lives.
  class Waiting {
   public:
    Waiting(ProgressBoard& board, Rank peer, const std::string& operation);
    ~Waiting();
    Waiting(Waiting&&) = delete;

   private:
    ProgressBoard& board_;
    std::uint64_t key_;
  };

  // Takes at most 0.9 s, also when the store's host is stopped.
  Blame find_culprit(Rank suspect);

  // The rank has died: publishes that, unless there is a verdict already. OnVerdict hears of
  // either.
  void report_death(Rank rank);

  // Rank 0 tells of ranks without a heartbeat for 2 s and more, and gives up one that has had none
  // for `limit`; the others give up a store that does not answer for as long. Before this, nobody
  // watches.
  void watch_beats(Seconds limit, OnSilence on_silence);

  // Where all ranks were when their words were last read, by rank: at the search for a culprit,
  // else now, which takes at most 0.3 s. None where the store does not answer or has too many to
  // read.
  std::vector<LastSeen> last_seen();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::comm
