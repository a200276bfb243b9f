// Which file each sample of a blend comes from: that whose share so far falls shortest of its weight, as
// Megatron-LM's BlendedDataset chooses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

// Samples that Megatron lays out of a file with this normalised weight when `samples` are asked of the blend:
// half a percent more than its share, so that rounding never runs dry.
std::int64_t blend_request(std::int64_t samples, double weight);

// Immutable; any thread may use it. Keeps 2 bytes a sample.
class Blend {
 public:
  // The choices of the first `samples` samples, or of fewer: it ends before the first that would take more
  // from a file than its limit. REQUIRES: normalised weights, as many limits, fewer than 32767.
  Blend(std::span<const double> weights, std::span<const std::int64_t> limits,
        std::int64_t samples);

  std::int64_t samples() const { return static_cast<std::int64_t>(files_.size()); }
  std::span<const std::int64_t> taken() const { return taken_; }  // of each file, by all samples

  struct Choice {
    std::size_t file = 0;
    std::int64_t draw = 0;  // how many samples of that file came before
    bool operator==(const Choice&) const = default;
  };
  // REQUIRES: 0 <= sample < samples().
  Choice at(std::int64_t sample) const;

 private:
  std::vector<std::uint16_t> files_;
  std::vector<std::int64_t> sums_;  // taken of each file before every kSamplesPerSum-th sample
  std::vector<std::int64_t> taken_;
};

}  // namespace lockstep::data
