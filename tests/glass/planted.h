// Faults of code that runs programs on a device, planted on purpose: by ops beside those of a
// program or a pass, or in calls of a communicator. Runtime and device stay as they are. What the
// checker reports (race.h) must name both ops.
//
// Written against LibTorch's generic interfaces, so the same tests run on glass and in rehearsal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep::glass {

// Of the program that the tests are in.
c10::DeviceType tested_device();
comm::WorldWrap new_tested_wires();        // of one world
int tested_stream_number(c10::Device of);  // the checker's, of the thread's stream

enum class Planted : std::uint8_t {
  kHostRead,         // the host reads what an op uses
  kMissingWait,      // an op is not put behind what made its operand
  kMissingWaitBack,  // what uses an op's result, or its memory, is not put behind the op
  kEarlyFree,        // memory is returned that another stream still uses
  kEarlyReuse,       // what an operation is to write is written before it is waited for
  kOrder,            // a call changes places with the next one on another communicator
  kDirection,        // a send is a receive, and a receive a send
};
std::string_view to_text(Planted kind);  // "missing wait"

// What became of those of one kind.
struct Tally {
  int planted = 0, reported = 0, equivalent = 0;
  std::vector<std::string> unseen = {};  // neither
};
using Tallies = std::map<std::string, Tally>;  // "missing wait, gather"
void add(const Tallies& from, Tallies& to);
// A line for each; then fails for what was not seen.
void expect_all_seen(const Tallies& tallies);

// A tensor that an op uses, and its name.
struct Used {
  std::string name;
  at::Tensor tensor;
};

// Plants faults of one kind at every op that a thread runs. Before an op and behind it, the
// thread's current stream is in order again, so one run has place for all. Belongs to its thread.
class OpPlanter {
 public:
  OpPlanter(Planted kind, c10::Device device, Tallies& tallies);

  // `what` runs next ("F of unit 1"), of that kind ("forward"). Faults are planted in what it uses,
  // or what it returns.
  void before(const std::string& what, std::string_view kind, const std::vector<Used>& used,
              const std::vector<Used>& returned);
  // It has run. Tensors that it made or changed; `is_idle`: it has not touched what it was said to.
  void behind(const std::vector<Used>& made, bool is_idle = false);

 private:
  void plant(const Used& used, bool is_behind, bool writes);
  void judge(bool is_idle);
  bool stays(std::size_t i) const;

  const Planted kind_;
  const c10::Device device_;
  const c10::Stream beside_;
  Tallies& tallies_;
  std::string what_, tally_;
  std::vector<std::string> names_;  // of what was planted since the last judgment
  // Memory of those that the op returns: address, and which taking it is from.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> returned_;
};

// Faults in calls of one rank on communicators of its device. Belongs to the rank's thread.
class CallPlanter {
 public:
  CallPlanter(Planted kind, c10::Device device) : kind_(kind), device_(device) {}

  // In place of `inner`, which outlives it, as does this.
  std::unique_ptr<comm::World> wrap(comm::World& inner);

  // From here on calls are numbered from 0, and those of these numbers go wrong, one at a time.
  void begin_step() { next_ = 0, issued_on_.clear(); }
  std::set<int> wanted = {};            // still to be planted
  std::vector<std::string> calls = {};  // of a step, in words; filled while nothing is wanted,
  // as is which of them were followed by one on another communicator before they were waited for
  std::set<int> overtakable = {};
  std::string what_runs;  // the op that issues

  // The call that has gone wrong.
  struct Site {
    int number = 0;
    std::string call, what;
    // Why it makes no difference; empty: that has not been proved.
    std::string proof = {};
    const comm::Communicator* on = nullptr;
    int number_on = 0;     // of the calls on its communicator
    bool is_done = false;  // the fault has been made
  };
  std::optional<Site> active;
  void repair();           // the thread's stream is in order again
  void host_has_waited();  // for all that the thread's stream was given

 private:
  friend class PlantedCommunicator;
  c10::Stream beside();
  void release();
  void was_waited_for(const comm::Communicator* on, int number, int number_on);

  const Planted kind_;
  const c10::Device device_;
  int next_ = 0;
  std::map<int, const comm::Communicator*> issued_on_ = {};  // in this step, by number
  std::uint64_t waited_ = 0;  // ops of the thread's stream that the host has waited for
  std::optional<c10::Stream> beside_;
  std::function<void()> held_ = nullptr;  // a call that waits for the next
  const comm::Communicator* holder_ = nullptr;
};

}  // namespace lockstep::glass
