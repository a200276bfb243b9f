// What `lockstep simulate` tells: one schedule with its drawing, a table of several, or JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/simulate/request.h"
#include "cli/simulate/timing.h"
#include "cli/verb.h"

namespace lockstep::cli {

struct Refused {
  std::string name;
  Error error;
};

struct SimulateResult {
  std::vector<Timed> timed;      // in the order asked for
  std::vector<Refused> refused;  // of --compare all
  std::vector<std::string> written;
};

void print_simulation(const SimulateRequest& request, const Timing& timing,
                      const SimulateResult& result, Output& output);

// "10.5", "0.333", "7e-05": three digits after the point at most.
std::string number_text(double number);
std::string microbatches_text(double number);  // "1 microbatch", "10.5 microbatches"

}  // namespace lockstep::cli
