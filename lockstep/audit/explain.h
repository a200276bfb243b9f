// What would explain a dump's gradients: hypotheses, each computed as a whole gradient and held to
// the dump tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "lockstep/audit/dump.h"
#include "lockstep/audit/step.h"

namespace lockstep::audit {

// All that hypotheses are made of. Absent parts make fewer hypotheses.
struct Evidence {
  const Dump& dump;
  const Step& truth;
  const Bounds& bounds;
  std::vector<Step> samples = {};                // of each sample alone
  std::vector<std::pair<int, Step>> moved = {};  // by how many tokens labels were
  std::vector<Gradients> shares = {};            // of each sequence-parallel rank, before their sum
  std::optional<Step> ends = {};                 // of a tied model, as if it were not
};

struct Explanation {
  std::string what;
  int fitted = 0;          // numbers that were chosen to fit, without a name for them
  int parts = 1;           // faults that it takes
  double residual = 0;     // relative, over all gradients
  std::string apart = {};  // what batch or layout would tell it from others; may be empty
};

// Those within the bounds, the fewest fitted numbers first, then the fewest parts; at most the
// first kind of them: all that are left cannot be told apart by this dump. Empty: nothing known
// explains it.
std::vector<Explanation> explain(const Evidence& evidence);

// The same of the loss and the norm that the framework said; empty where they are right or nothing
// is known.
std::vector<Explanation> explain_loss(const Evidence& evidence, double said);
std::vector<Explanation> explain_norm(const Evidence& evidence, double said);

}  // namespace lockstep::audit
