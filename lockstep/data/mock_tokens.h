// Made-up text that can be learned, for trying out and verifying: each token follows from the one
// before it by a fixed rule nine times out of ten.
#pragma once

#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/data/token_source.h"

namespace lockstep::data {

class MockTokens final : public TokenSource {
 public:
  // With `ignore_some`, up to half of a sequence's labels are ignored, a different share in every
  // sample: a loss divided by anything but the global count is then wrong. Samples count from
  // `first` on.
  MockTokens(std::uint64_t seed, std::int64_t vocab, bool ignore_some, std::int64_t first = 0);

  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override;
  std::int64_t valid_labels(std::int64_t sample, std::int64_t seq) const override;

 private:
  RandomStream tokens_, choices_, ignored_;
  std::int64_t vocab_, first_;
  bool ignore_some_;
};

}  // namespace lockstep::data
