// Whether the state of a job is what its steps have left (train.check_interval). In every so many
// steps each rank compares, in Norm and so before anything is updated:
//
//   - all that it owns, weights, masters and moments, with digests that it took when the step
//     before had ended: what changed meanwhile, nobody has written;
//   - what several ranks hold with those of the others, gradients that all of them were sent
//     included: Norm adds up the digests, each with a factor, so that the sum is 0 where replicas
//     agree (modulo 2^64; other sums are 0 by chance once in as many).
//
// And in every step a few elements' update with what another rank computes (spot_check.h). What
// is found there is told by the next Norm. A step in which a rank finds anything changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/train/bit_flip.h"
#include "lockstep/train/job.h"
#include "lockstep/train/spot_check.h"
#include "lockstep/train/state_pieces.h"

namespace lockstep::train {

// What a check sends besides Norm's words.
inline constexpr const char* kCheckAxis = "check";

// One piece and its digest, as ranks tell each other after a check that found something.
struct PieceDigest {
  std::uint64_t key = 0, digest = 0;
  std::string name;
};
// What a rank found of itself or its neighbour, and what it holds that others hold too.
struct CheckFindings {
  std::vector<std::string> faults;
  std::vector<PieceDigest> pieces;
};
// Which ranks are wrong about what, in words: of three or more replicas the minority, of two that
// nobody can tell. `ranks` in the order of the world.
std::string verdict_on(const std::vector<CheckFindings>& ranks);

// Belongs to the rank's thread. What is given outlives it. All ranks make the same calls.
class StateCheck {
 public:
  StateCheck(const Job& job, runtime::TensorWorkspace& workspace, const runtime::Place& place,
             comm::World& world, const std::string& label, Seconds op_deadline);

  // Of the next step in which it is due, this rank. For tests.
  void plan(const BitFlip& flip) { flip_ = flip; }

  void begin_step(std::int64_t step);
  void at_norm(exec::StepSums& sums);
  // Behind the last op of the step.
  void end_step(bool updated);

  // After a step whose sums were not sound: what is wrong, the same on all ranks.
  Error verdict();
  // Between two steps: whether all replicas agree and nothing was found since the last Norm. The
  // same on all ranks.
  std::optional<Error> check_now();

  Seconds spent() const { return spent_; }  // in this step

 private:
  bool is_due(std::int64_t step) const { return step % job_.spec.train.check_interval == 0; }
  void flip(BitFlip::When when);
  void compare_at_rest(std::span<const StatePiece> pieces, const std::vector<std::uint64_t>& now);
  std::uint64_t residue_of(std::span<const StatePiece> pieces,
                           const std::vector<std::uint64_t>& digests);
  void forget();

  const Job& job_;
  runtime::TensorWorkspace& workspace_;
  const Rank rank_;
  const Seconds op_deadline_;
  const std::unique_ptr<comm::Communicator> all_;
  const std::vector<StatePiece> at_rest_, at_norm_, between_;
  SpotCheck spot_check_;
  std::optional<BitFlip> flip_;
  std::int64_t step_ = 0;
  std::vector<std::uint64_t> left_;  // digests of at_rest_ when a step ended; empty: none
  std::int64_t left_for_ = 0;        // the step that they are for
  std::int64_t writes_ = 0;          // of the workspace then
  CheckFindings found_;
  Seconds spent_;
};

}  // namespace lockstep::train
