// One thing that a look at the machine found, in words a person can act on.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct Finding {
  enum class Verdict : std::uint8_t { kGood, kNote, kProblem };
  Verdict verdict = Verdict::kGood;
  std::string subject;    // "strict kernels"
  std::string text;       // one sentence, no full stop
  std::string help = {};  // what to do about it; may be empty
};

}  // namespace lockstep
