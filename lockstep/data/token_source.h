// Where tokens come from: a pure function of the sample's number. A step takes the next samples;
// which rank reads which of them is decided elsewhere and changes nothing here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

inline constexpr std::int64_t kIgnoredLabel = -100;  // takes no part in the loss

// Any thread may call it.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Fills both with one sequence: labels[i] is what follows tokens[i], or kIgnoredLabel.
  // REQUIRES: equal sizes.
  virtual void read(std::int64_t sample, std::span<std::int64_t> tokens,
                    std::span<std::int64_t> labels) const = 0;
  // How many labels of a sequence of `seq` tokens are not ignored: as read() would tell. A source
  // that knows without reading says so; this one reads.
  virtual std::int64_t valid_labels(std::int64_t sample, std::int64_t seq) const {
    std::vector<std::int64_t> tokens(seq), labels(tokens.size());
    read(sample, tokens, labels);
    return seq - std::ranges::count(labels, kIgnoredLabel);
  }
  // Says that the `count` samples from `first` on will be read soon, so that they are on their way
  // from the disk by then. Returns at once, changes nothing that can be read, and may be left out.
  virtual void expect(std::int64_t first, std::int64_t count) const {
    static_cast<void>(first), static_cast<void>(count);
  }
};

// Which samples of a step a rank reads: they are split over data ranks in blocks, then over
// microbatches, then rows. With any number of ranks and any size of microbatch each sample of the
// step is read once.
struct StepSamples {
  std::int64_t first = 0;         // of the step
  std::int64_t microbatches = 1;  // of one data rank
  std::int64_t rows = 1;          // samples of a microbatch

  std::int64_t sample(std::int64_t data_rank, std::int64_t microbatch, std::int64_t row) const {
    return first + (data_rank * microbatches + microbatch) * rows + row;
  }
};

}  // namespace lockstep::data
