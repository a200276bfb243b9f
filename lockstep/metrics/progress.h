// How far a run has come, for people who watch it.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/units.h"

namespace lockstep::metrics {

// How long what is left will take, from how long steps took lately. It counts samples, because
// steps of a batch that grows take ever longer. One thread at a time.
class TimeLeft {
 public:
  void add(std::int64_t samples, Seconds time);
  // 0 before the first step.
  Seconds of(std::int64_t samples_left) const;

 private:
  double samples_ = 0, seconds_ = 0;  // each step weighs a tenth less than the one after it
};

struct Progress {
  std::int64_t step = 0;  // done
  std::int64_t steps = 0;
  double loss = 0;
  double tokens_per_second = 0;
  Seconds left = {};
};

// "  412/1000 [########............]  41 %  loss 3.2141  52,113 tokens/s  4 min left", in at most
// `width` columns: the bar takes what the rest leaves, and what does not fit is left out.
std::string progress_line(const Progress& progress, int width);

}  // namespace lockstep::metrics
