// The order of samples that Megatron-LM's GPTDataset gives one file. Its three arrays, of which two
// are kept:
//
//   document index   the pieces of the split, once for each epoch, shuffled
//   sample index     sample k is tokens k * seq to k * seq + seq of the pieces in that order; its
//                    last token is the first of sample k + 1: a label here, a token there
//   shuffle index    the order in which samples are drawn
//
// Both shuffles take from one generator. When the demand needs less than 80 % of the last epoch,
// that epoch is shuffled apart, pieces and samples, so that what comes first has seen all of the
// text equally often. The sample index of Megatron is a table of 8 or 16 bytes a sample; here it is
// computed from a sum that is kept for every 32nd piece.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/data/token_index.h"

namespace lockstep::data {

// The text a run learns from: token files, how they are mixed, and which part of them is for
// validation. Plain data; any thread may read it.

// The parts a corpus is divided into, always in this order.
enum class Split : std::uint8_t { kTrain, kValidation, kTest };
inline constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

std::string_view to_text(Split split);  // "train", "validation", "test"

using Shares = std::array<double, 3>;  // of the splits; only their ratio counts

struct Corpus {
  // Each the prefix of a Megatron pair PREFIX.bin and PREFIX.idx, or an llm.c file that ends in
  // .bin.
  std::vector<std::string> files = {};
  // Beside `files`; only their ratio counts. Empty: every file in proportion to the samples it has.
  std::vector<double> weights = {};
  Shares shares = {969, 30, 1};
  std::uint32_t seed = 0;
  bool operator==(const Corpus&) const = default;
};

// Where the splits of a file begin and end.

// Weights divided by their sum, in the order of additions in which numpy.sum takes them, whose last
// bit shows in Megatron's order. REQUIRES: none negative, one positive.
std::vector<double> normalised(std::span<const double> weights);

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The pieces of each split: bounds at the running sum of the shares times the number of pieces,
// rounded half to even. REQUIRES: shares as of normalised().
std::array<Range, 3> split_bounds(const Shares& shares, std::int64_t pieces);

// Which file each sample of a blend comes from: that whose share so far falls shortest of its
// weight, as Megatron-LM's BlendedDataset chooses.

// Samples that Megatron lays out of a file with this normalised weight when `samples` are asked of
// the blend: half a percent more than its share, so that rounding never runs dry.
std::int64_t blend_request(std::int64_t samples, double weight);

// Immutable; any thread may use it. Keeps 2 bytes a sample.
class Blend {
 public:
  // The choices of the first `samples` samples, or of fewer: it ends before the first that would
  // take more from a file than its limit. REQUIRES: normalised weights, as many limits, fewer than
  // 32767.
  Blend(std::span<const double> weights, std::span<const std::int64_t> limits,
        std::int64_t samples);

  std::int64_t samples() const { return std::ssize(files_); }
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

// What numpy.random.RandomState draws, bit for bit: MT19937 (Matsumoto, Nishimura, "Mersenne
// twister", 1998), and whole numbers by masking and rejecting, as numpy's shuffle takes them.
// Megatron's order of samples is made of it; everything else of ours draws from base/random.h.

// One thread at a time.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : words_(seed) {}

  // A whole number from 0 to `last`, both included.
  std::uint32_t up_to(std::uint32_t last) {
    if (last == 0) return 0;
    const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(last);
    std::uint32_t word = 0;
    do word = static_cast<std::uint32_t>(words_()) & mask;
    while (word > last);
    return word;
  }

  // numpy's shuffle of an array of one dimension. REQUIRES: at most 2^32 items.
  template <class Item>
  void shuffle(std::span<Item> items) {
    // Partners depend on no item, so some are drawn ahead: their cache lines come meanwhile.
    constexpr std::size_t kAhead = 32;
    std::array<std::uint32_t, kAhead> partners;
    for (std::size_t last = items.size(); last > 1;) {
      const std::size_t count = std::min(kAhead, last - 1);
      for (std::size_t i = 0; i < count; ++i) {
        partners[i] = up_to(static_cast<std::uint32_t>(last - 1 - i));
        __builtin_prefetch(&items[partners[i]], 1);
      }
      for (std::size_t i = 0; i < count; ++i) std::swap(items[--last], items[partners[i]]);
    }
  }

 private:
  std::mt19937 words_;
};

struct OrderDemand {
  std::int64_t seq = 0;                      // tokens of a sample, > 0
  std::optional<std::int64_t> samples = {};  // nothing: what one epoch gives
  std::uint32_t seed = 0;
};

// Immutable; any thread may use it. Refers to the lengths' bytes.
class SampleOrder {
 public:
  // Refuses (LS0803) pieces that have too few tokens for one sample, and demands beyond 2^32 - 2
  // samples or 2^31 pieces over all epochs; messages speak of `what`.
  static Result<SampleOrder> build(const PieceLengths& lengths, const Range& pieces,
                                   const OrderDemand& demand, const std::string& what);

  std::int64_t samples() const { return std::ssize(shuffle_); }
  std::int64_t epochs() const { return epochs_; }
  bool last_epoch_apart() const { return last_epoch_apart_; }
  std::int64_t tokens_per_epoch() const { return tokens_per_epoch_; }

  // Entry `draw` of the shuffle index: the sample that is drawn then. REQUIRES: 0 <= draw <
  // samples().
  std::int64_t sample(std::int64_t draw) const { return shuffle_[draw]; }

  // Row `sample` of the sample index: where a sample begins. REQUIRES: 0 <= sample <= samples().
  struct Place {
    std::int64_t position = 0;  // in the document index
    std::int64_t offset = 0;    // tokens of that piece before it
    bool operator==(const Place&) const = default;
  };
  Place place(std::int64_t sample) const;

  // Entry `position` of the document index.
  std::int64_t piece(std::int64_t position) const { return document_index_[position]; }
  std::int64_t positions() const { return std::ssize(document_index_); }

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
