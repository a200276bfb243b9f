// The samples of one split of a corpus, in the order in which Megatron-LM (core 0.19) draws them
// for the same files, weights, shares, seed, sequence length and number of samples, bit for bit.
// See docs/data.md.
//
// Sample n is the same tokens whatever the layout, the batch and the number of ranks, so the
// position of a run is the number of samples it has taken.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/data/sample_order.h"
#include "lockstep/data/token_file.h"
#include "lockstep/data/token_source.h"

namespace lockstep::data {

// How much of a split is asked for.
struct Demand {
  std::int64_t seq = 0;      // tokens in a sample, > 0
  std::int64_t samples = 0;  // how many will be read; 0: as many as one pass over the split has
  std::int64_t vocab = 0;    // token ids lie below it; 0: any are let through
};

// What is taken from one file.
struct Part {
  std::string file;
  double weight = 1;           // normalised: all add up to 1
  std::int64_t documents = 0;  // of the split; in a file whose documents have several pieces, those
  std::int64_t tokens = 0;     // of the split
  std::int64_t epochs = 0;     // passes over them that were laid out
  bool last_epoch_apart = false;  // the last, incomplete pass is shuffled by itself
  std::int64_t built = 0;         // samples laid out
  std::int64_t taken = 0;         // of them, how many the demand draws
};

// A thread that does what may wait for a disk, so that nobody else has to: it calls `work` with
// each range that was asked for, in order. It starts with the first; ranges that wait when this
// ends are dropped, and so is the oldest when too many wait: they are wishes, not duties.
class ReadAhead {
 public:
  using Work = std::function<void(std::int64_t first, std::int64_t count)>;
  explicit ReadAhead(Work work) : work_(std::move(work)) {}
  ~ReadAhead();
  ReadAhead(ReadAhead&&) = delete;

  // Any thread; returns at once.
  void ask(std::int64_t first, std::int64_t count);

 private:
  void loop(const std::stop_token& stop);

  Work work_;
  std::mutex mutex_;
  std::condition_variable_any asked_;
  std::deque<std::pair<std::int64_t, std::int64_t>> ranges_;
  std::jthread thread_;
};

// Files are mapped, not read; they must not change while this lives. Costs 4 bytes for each
// document of every epoch and 4 for each sample, and 2 more for each sample of a blend.
class CorpusTokens final : public TokenSource {
 public:
  // Refuses files that cannot be read or are not what they say (LS0004, LS0801), splits that are
  // empty or too short for one sample, and demands beyond 2^32 samples of one file (LS0803).
  static Result<std::unique_ptr<CorpusTokens>> open(const Corpus& corpus, Split split,
                                                    const Demand& demand);

  // REQUIRES: 0 <= sample < samples(), both spans of Demand::seq. Throws IoError (LS0802) that
  // names file, document and token when a token id is not below the vocabulary.
  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override;
  // All of them: every token of a file follows another.
  std::int64_t valid_labels(std::int64_t, std::int64_t seq) const override { return seq; }
  // Samples beyond the last are passed over.
  void expect(std::int64_t first, std::int64_t count) const override { ahead_.ask(first, count); }

  std::int64_t samples() const { return samples_; }
  std::span<const Part> parts() const { return parts_; }  // in the order of the files
  // Equal for equal orders of equal files (their lengths are looked at, not their tokens); what a
  // checkpoint keeps to know that a resumed run goes on in the same order. Names and places of
  // files do not count.
  Hash128 digest() const { return digest_; }

 private:
  struct Share;
  explicit CorpusTokens(const Demand& demand) : demand_(demand) {}
  std::vector<double> weigh(const Corpus& corpus, std::vector<Share>& shares) const;
  Result<void> lay_out(const Corpus& corpus, Split split);
  void describe(const std::vector<double>& weights, std::uint32_t seed);
  template <class Visit>
  void walk(std::int64_t sample, Visit visit) const;
  void bring(std::int64_t first, std::int64_t count) const;
  void check(const TokenFile& file, std::int64_t piece, std::int64_t offset,
             std::span<const std::int64_t> tokens) const;

  const Demand demand_;
  std::vector<TokenFile> files_;
  std::vector<Range> pieces_;
  std::vector<SampleOrder> orders_;
  std::optional<Blend> blend_;  // nothing: one file without a weight
  std::vector<Part> parts_;
  std::int64_t samples_ = 0;
  Hash128 digest_;
  mutable ReadAhead ahead_{[this](std::int64_t first, std::int64_t count) { bring(first, count); }};
};

}  // namespace lockstep::data
