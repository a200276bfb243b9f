// Which token comes next, from the logits of all of them. The draw is a pure function of logits,
// settings, the name of a random stream and the token's number, so that others can repeat it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/base/result.h"

namespace lockstep::generate {

struct Sampling {
  double temperature = 1.0;  // logits are divided by it; 0: the likeliest token, without a draw
  std::int64_t top_k = 0;    // of the likeliest tokens so many; 0: all
  double top_p = 1.0;        // of these the fewest likeliest that have this share of probability
  std::uint64_t seed = 0;
};

// Draws among ids [0, logits.size()): softmax of logits / temperature in f64 over those that top_k
// leaves, cut by top_p, in the order of ids; the first at which the sum of probabilities exceeds a
// uniform number times their total. Of equal logits the lower id is likelier. Immutable; any
// thread.
class Sampler {
 public:
  // `stream`: other texts of one seed have others.
  Sampler(const Sampling& how, std::string_view stream) : how_(how), random_(how.seed, stream) {}

  // Token number `index` of a text. REQUIRES: some logits, all finite.
  std::int64_t draw(std::span<const float> logits, std::uint64_t index) const;

 private:
  std::vector<std::int64_t> candidates(std::span<const float> logits) const;

  Sampling how_;
  RandomStream random_;
};

}  // namespace lockstep::generate
