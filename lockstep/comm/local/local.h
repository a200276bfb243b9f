// The in-process world: ranks are threads. For `verify`, tests and small experiments, 1 to 64 and
// more ranks.
//
// It obeys the contract of communicator.h in the least helpful way it allows, so that mistakes
// show:
//   - an output holds 0xff bytes (a NaN in every float type) from issue until its own wait, however
//   early the
//     operation could have finished, so a missing wait is always caught;
//   - operations that are ready complete in a seeded random order, and as late as is asked for;
//   - an input that changes before its wait fails that wait;
//   - members that call different operations, or sizes that do not match, are told so at once.
// Waiting threads block; nothing spins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

class LocalHub;

// An operation in which all its members take part, so that it could complete.
struct Delivery {
  std::string_view group;
  OpKind kind = OpKind::kSend;  // stands for a message
  int from = -1;                // member that sends the message; -1: a collective
  int to = -1;                  // member that receives it
  int tag = -1;                 // of a message
  std::int64_t number = 0;  // of the same kind before it: on this group, with these members and tag
};
// How long an operation is held back once it is ready; infinite: for ever. Called by any thread of
// the world, one at a time.
using Lateness = std::function<Seconds(const Delivery&)>;

struct LocalOptions {
  std::uint64_t seed = 0;  // order in which ready operations complete
  Lateness lateness = {};  // absent: none
};

// Shared by all rank threads; any thread may call it.
class LocalWorld {
 public:
  explicit LocalWorld(int size, LocalOptions options = {});
  ~LocalWorld();

  // The endpoint of one rank, to be used by that rank's thread. When it is destroyed the rank has
  // left, and peers that still wait for it fail. REQUIRES: once per rank.
  std::unique_ptr<World> join(Rank rank);

  // The rank's thread ended with an error: peers that wait for it fail at once and name it.
  void mark_lost(Rank rank, const std::string& why);

 private:
  std::shared_ptr<LocalHub> hub_;
};

// Runs `body` once per rank, each on its own thread, and waits for all. When ranks throw, the
// failure that caused the others is rethrown: the first by rank that is not a CommError, else the
// first CommError.
void run_local(int size, const std::function<void(World&)>& body, LocalOptions options = {});

}  // namespace lockstep::comm
