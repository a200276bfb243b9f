// Who is to blame when a collective fails. Gloo reports that some connection broke or that time ran
// out, never which rank caused it: usually the messenger is another survivor. So each rank leaves a
// progress word in the store every 100 ms: that it lives, where it is, and whom it waits for. The
// first survivor to fail follows those words from the peer that failed it to a rank that no longer
// writes, or that waits for nobody, and publishes the verdict; all others adopt it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/ids.h"
#include "lockstep/comm/position.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::tensor {

struct Blame {
  Rank rank;
  std::string verdict;  // "rank 3 shows no sign of life", "rank 2 is alive but ..."
};

// Any thread may call it.
class ProgressBoard {
 public:
  // Connects to the store of `rendezvous` and starts writing, `position` with it where there is one.
  // Throws std::exception when it can not.
  ProgressBoard(const comm::Rendezvous& rendezvous, Deadline deadline,
                std::shared_ptr<const comm::PositionCell> position = nullptr);
  // The rank that hosts the store stays up to 0.8 s, until the others have left or, after a failure,
  // know the verdict.
  ~ProgressBoard();

  // Says that this rank waits for `peer` in an operation, for as long as the object lives.
  class Waiting {
   public:
    Waiting(ProgressBoard& board, Rank peer, const std::string& operation);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    ProgressBoard& board_;
    std::uint64_t key_;
  };

  // Takes at most 0.9 s, also when the store's host is stopped.
  Blame find_culprit(Rank suspect);

  // Where all ranks were when their words were last read, by rank: at the search for a culprit, else
  // now, which takes at most 0.3 s. None where the store does not answer or has too many to read.
  std::vector<comm::Sighting> sightings();

 private:
  struct Shared;
  void stay_for_others(const std::optional<Blame>& known) const;
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::tensor
