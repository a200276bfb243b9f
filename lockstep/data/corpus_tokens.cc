#include "lockstep/data/corpus_tokens.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostWaiting = 64;

std::string what_of(const TokenFile& file, Split split) {
  return join_parts("the ", to_text(split), " split of `", file.name(), "`");
}

}  // namespace

// What a file is asked for.
struct CorpusTokens::Share {
  Range pieces;
  std::optional<std::int64_t> samples = {};  // nothing: one epoch
};

Result<std::unique_ptr<CorpusTokens>> CorpusTokens::open(const Corpus& corpus, Split split,
                                                         const Demand& demand) {
  LS_CHECK(demand.seq > 0 && demand.samples >= 0 && demand.vocab >= 0, "a demand of nothing");
  LS_CHECK(!corpus.files.empty(), "a corpus without files");
  std::unique_ptr<CorpusTokens> made(new CorpusTokens(demand));
  for (const std::string& name : corpus.files) {
    TokenFile file = LS_TRY(TokenFile::open(name));
    made->files_.push_back(std::move(file));
  }
  LS_TRY(made->lay_out(corpus, split));
  return made;
}

// Gives each file its weight and its request. Megatron: weights are normalised for the requests,
// and once more for the choices; without weights, files count by their samples in one epoch.
std::vector<double> CorpusTokens::weigh(const Corpus& corpus, std::vector<Share>& shares) const {
  if (files_.size() == 1 && corpus.weights.empty()) {
    if (demand_.samples > 0) shares[0].samples = demand_.samples;
    return {};
  }
  const bool is_given = !corpus.weights.empty();
  std::vector<double> counts;  // samples of one epoch of each file
  double all = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Range& pieces = shares[i].pieces;
    const std::int64_t tokens =
        files_[i].tokens_before(pieces.end) - files_[i].tokens_before(pieces.begin);
    counts.push_back(static_cast<double>(std::max<std::int64_t>(0, (tokens - 1) / demand_.seq)));
    all += counts.back();
  }
  if (!is_given && all == 0) return counts;  // the first order is refused
  const bool is_within_epoch = !is_given && static_cast<double>(demand_.samples) <= all;
  std::vector<double> once = normalised(is_given ? corpus.weights : counts);
  if (is_within_epoch) return once;
  if (demand_.samples > 0)
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (once[i] > 0) shares[i].samples = blend_request(demand_.samples, once[i]);
  return normalised(once);
}

Result<void> CorpusTokens::lay_out(const Corpus& corpus, Split split) {
  std::vector<Share> shares;
  for (const TokenFile& file : files_) {
    pieces_.push_back(split_bounds(corpus.shares, file.pieces())[static_cast<std::size_t>(split)]);
    if (pieces_.back().size() == 0)
      return Error{Code::kTooLittleData,
                   join_parts(what_of(file, split), " is empty: of ", with_commas(file.documents()),
                              " documents none falls to it"),
                   "give this split a larger share of data.split, or add documents"};
    shares.push_back({pieces_.back()});
  }
  const std::vector<double> weights = weigh(corpus, shares);
  std::vector<std::int64_t> limits;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    SampleOrder order = LS_TRY(SampleOrder::build(files_[i].lengths(), pieces_[i],
                                                  {demand_.seq, shares[i].samples, corpus.seed},
                                                  what_of(files_[i], split)));
    limits.push_back(order.samples());
    orders_.push_back(std::move(order));
  }
  if (weights.empty()) {
    samples_ = demand_.samples > 0 ? demand_.samples : orders_[0].samples();
  } else {
    const std::int64_t all = std::accumulate(limits.begin(), limits.end(), std::int64_t{0});
    blend_.emplace(weights, limits, demand_.samples > 0 ? demand_.samples : all);
    samples_ = blend_->samples();
    LS_CHECK(demand_.samples == 0 || samples_ == demand_.samples, "a blend of ", demand_.samples,
             " ran dry after ", samples_);
  }
  describe(weights, corpus.seed);
  return {};
}

void CorpusTokens::describe(const std::vector<double>& weights, std::uint32_t seed) {
  std::string text = join_parts("lockstep.order/1 ", demand_.seq, " ", seed);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const SampleOrder& order = orders_[i];
    parts_.push_back({.file = files_[i].name(),
                      .weight = weights.empty() ? 1 : weights[i],
                      .documents = pieces_[i].size(),
                      .tokens = order.tokens_per_epoch(),
                      .epochs = order.epochs(),
                      .last_epoch_apart = order.last_epoch_apart(),
                      .built = order.samples(),
                      .taken = blend_ ? blend_->taken()[i] : samples_});
    const std::span<const std::byte> lengths = files_[i].lengths().bytes();
    const auto width = static_cast<std::int64_t>(sizeof(std::int32_t));
    const auto own = lengths.subspan(pieces_[i].begin * width, pieces_[i].size() * width);
    text += join_parts(" ", pieces_[i].begin, " ", to_hex(xxh3_128(own)), " ", order.epochs(), " ",
                       order.last_epoch_apart(), strf(" %a", parts_[i].weight));
  }
  digest_ = xxh3_128(text);
}

// Calls `visit(file, piece, offset, count)` for the runs of tokens that make up a sample and its
// last label.
template <class Visit>
void CorpusTokens::walk(std::int64_t sample, Visit visit) const {
  const Blend::Choice choice = blend_ ? blend_->at(sample) : Blend::Choice{0, sample};
  const SampleOrder& order = orders_[choice.file];
  const TokenFile& file = files_[choice.file];
  SampleOrder::Place place = order.place(order.sample(choice.draw));
  for (std::int64_t left = demand_.seq + 1; left > 0; ++place.position, place.offset = 0) {
    const std::int64_t piece = order.piece(place.position);
    const std::int64_t count = std::min(left, file.lengths()[piece] - place.offset);
    if (count > 0) visit(file, piece, place.offset, count);
    left -= count;
  }
}

void CorpusTokens::bring(std::int64_t first, std::int64_t count) const {
  for (std::int64_t sample = first; sample < std::min(first + count, samples_); ++sample)
    walk(sample, [](const TokenFile& file, std::int64_t piece, std::int64_t offset,
                    std::int64_t tokens) { file.expect(piece, offset, tokens); });
}

// One comparison does for negative ids too.
void CorpusTokens::check(const TokenFile& file, std::int64_t piece, std::int64_t offset,
                         std::span<const std::int64_t> tokens) const {
  const auto limit = static_cast<std::uint64_t>(demand_.vocab);
  std::uint64_t largest = 0;
  for (const std::int64_t id : tokens) largest = std::max(largest, static_cast<std::uint64_t>(id));
  if (largest < limit || limit == 0) return;
  const auto found = std::ranges::find_if(
      tokens, [&](std::int64_t token) { return static_cast<std::uint64_t>(token) >= limit; });
  const std::int64_t document = file.document_of(piece);
  const std::int64_t in_document = file.tokens_before(piece) + offset + (found - tokens.begin()) -
                                   file.tokens_before(file.first_piece(document));
  throw IoError({Code::kTokenBeyondVocab,
                 join_parts("`", file.name(), "`, document ", document, ", token ", in_document,
                            ": id ", *found, " is not below the vocabulary of ", demand_.vocab),
                 "the file was made with another tokenizer; `lockstep data verify` finds all such "
                 "documents"});
}

void CorpusTokens::read(std::int64_t sample, std::span<std::int64_t> tokens,
                        std::span<std::int64_t> labels) const {
  const auto seq = static_cast<std::size_t>(demand_.seq);
  LS_CHECK(sample >= 0 && sample < samples() && tokens.size() == seq && labels.size() == seq,
           "sample ", sample, " of ", samples(), ", ", tokens.size(), " tokens of ", seq);
  std::vector<std::int64_t> both(seq + 1);
  std::size_t done = 0;
  walk(sample, [&](const TokenFile& file, std::int64_t piece, std::int64_t at, std::int64_t count) {
    const auto run = std::span(both).subspan(done, count);
    file.read(piece, at, run);
    check(file, piece, at, run);
    done += run.size();
  });
  std::copy_n(both.begin(), seq, tokens.begin());
  std::copy_n(both.begin() + 1, seq, labels.begin());
}

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void ReadAhead::ask(std::int64_t first, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::jthread([this](std::stop_token stop) { loop(stop); });
  ranges_.emplace_back(first, count);
  if (ranges_.size() > kMostWaiting) ranges_.pop_front();
  asked_.notify_one();
}

void ReadAhead::loop(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!asked_.wait(lock, stop, [&] { return !ranges_.empty(); })) return;
    const auto [first, count] = ranges_.front();
    ranges_.pop_front();
    lock.unlock();
    if (stop.stop_requested()) return;
    work_(first, count);
  }
}

}  // namespace lockstep::data
