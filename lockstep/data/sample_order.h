// The order of samples that Megatron-LM's GPTDataset gives one file. Its three arrays, of which two are kept:
//
//   document index   the pieces of the split, once for each epoch, shuffled
//   sample index     sample k is tokens k * seq to k * seq + seq of the pieces in that order; its last token
//                    is the first of sample k + 1, because it is only a label here and only a token there
//   shuffle index    the order in which samples are drawn
//
// Both shuffles take from one generator. When the demand needs less than 80 % of the last epoch, that epoch is
// shuffled apart, pieces and samples, so that what comes first has seen all of the text equally often. The
// sample index of Megatron is a table of 8 or 16 bytes a sample; here it is computed from a sum that is kept for
// every 32nd piece.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/data/split_bounds.h"
#include "lockstep/data/token_index.h"

namespace lockstep::data {

struct OrderDemand {
  std::int64_t seq = 0;                      // tokens of a sample, > 0
  std::optional<std::int64_t> samples = {};  // nothing: what one epoch gives
  std::uint32_t seed = 0;
};

// Immutable; any thread may use it. Refers to the lengths' bytes.
class SampleOrder {
 public:
  // Refuses (LS0803) pieces that have too few tokens for one sample, and demands beyond 2^32 - 2 samples or
  // 2^31 pieces over all epochs; messages speak of `what`.
  static Result<SampleOrder> build(const PieceLengths& lengths, const Range& pieces,
                                   const OrderDemand& demand, const std::string& what);

  std::int64_t samples() const { return static_cast<std::int64_t>(shuffle_.size()); }
  std::int64_t epochs() const { return epochs_; }
  bool last_epoch_apart() const { return last_epoch_apart_; }
  std::int64_t tokens_per_epoch() const { return tokens_per_epoch_; }

  // Entry `draw` of the shuffle index: the sample that is drawn then. REQUIRES: 0 <= draw < samples().
  std::int64_t sample(std::int64_t draw) const { return shuffle_[static_cast<std::size_t>(draw)]; }

  // Row `sample` of the sample index: where a sample begins. REQUIRES: 0 <= sample <= samples().
  struct Place {
    std::int64_t position = 0;  // in the document index
    std::int64_t offset = 0;    // tokens of that piece before it
    bool operator==(const Place&) const = default;
  };
  Place place(std::int64_t sample) const;

  // Entry `position` of the document index.
  std::int64_t piece(std::int64_t position) const {
    return document_index_[static_cast<std::size_t>(position)];
  }
  std::int64_t positions() const { return static_cast<std::int64_t>(document_index_.size()); }

 private:
  void lay_out(const Range& pieces, std::int64_t samples_before_last, std::int64_t samples,
               std::uint32_t seed);

  PieceLengths lengths_;
  std::int64_t seq_ = 0;
  std::int64_t tokens_per_epoch_ = 0;
  std::int64_t epochs_ = 1;
  bool last_epoch_apart_ = false;
  std::vector<std::int32_t> document_index_;
  std::vector<std::uint32_t> shuffle_;
  std::vector<std::int64_t> sums_;  // tokens before every kPiecesPerSum-th position
};

}  // namespace lockstep::data
