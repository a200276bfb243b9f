// A measured step beside a simulated one: how long each kind of op took of a rank's list in both,
// so that what the prediction missed is attributed to its causes. Of every rank, and so of their
// mean, the parts make up the whole step: nothing is left over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/program/program.h"
#include "lockstep/program/timeline.h"
#include "lockstep/sim/simulator.h"

namespace lockstep::sim {

enum class Cause : std::uint8_t {
  kCompute,     // passes, optimizer, loading
  kHop,         // transfers: issuing, moving and taking over
  kCollective,  // likewise of collectives, and meetings once all have come
  kWait,        // standing still before the op that is waited for has begun: others are late
  kList,        // between two ops of the list
};
inline constexpr int kNumCauses = 5;
std::string_view to_text(Cause cause);  // "compute"

struct Residual {
  Cause cause = Cause::kCompute;
  std::string what;             // "F", "gather", "for reduce", "after the last op"
  Seconds predicted, measured;  // mean over ranks
  Seconds difference() const { return measured - predicted; }
};

struct Residuals {
  std::vector<Residual> rows;   // by cause, then in the order of op kinds
  Seconds predicted, measured;  // the step

  Residual total(Cause cause) const;
  double error() const { return predicted.value / measured.value - 1; }
};

// REQUIRES: times of this program, of every op.
Residuals residuals(const program::Program& program, const Simulation& predicted,
                    const program::StepTimeline& measured);

}  // namespace lockstep::sim
