// What one verb answers inside this process, with no environment around it.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/verbs.h"

namespace lockstep::cli {

struct Answer {
  ExitCode code;
  std::string out;
  std::string err;
};

inline Answer answer(const Verb& verb, const std::vector<std::string>& words, int width = 80) {
  const Surroundings surroundings = {.lookup = [](const std::string&) { return std::nullopt; },
                                     .width = width};
  std::ostringstream out, err;
  const ExitCode code = run_lockstep({verb}, words, surroundings, out, err);
  return {code, out.str(), err.str()};
}

}  // namespace lockstep::cli
