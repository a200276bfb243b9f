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

// `width`: of a terminal without colours; 0: a pipe.
inline Answer answer(const std::vector<Verb>& verbs, const std::vector<std::string>& words,
                     int width = 0) {
  const Environment environment = {
      .lookup = [](const std::string& name) -> std::optional<std::string> {
        return name == "NO_COLOR" ? std::optional<std::string>("1") : std::nullopt;
      },
      .out_is_terminal = width > 0,
      .width = width > 0 ? width : 80};
  std::ostringstream out, err;
  const ExitCode code = run_lockstep(verbs, words, environment, out, err);
  return {code, out.str(), err.str()};
}
inline Answer answer(const Verb& verb, const std::vector<std::string>& words, int width = 0) {
  return answer(std::vector<Verb>{verb}, words, width);
}

}  // namespace lockstep::cli
