#include "lockstep/data/corpus_tokens.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/data/token_file.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostWaiting = 64;

std::string what_of(const TokenFile& file, Split split) {
  return join_parts("the ", to_text(split), " split of `", file.name(), "`");
}

Result<std::vector<TokenFile>> open_files(const Corpus& corpus) {
  LS_CHECK(!corpus.files.empty(), "a corpus without files");
  std::vector<TokenFile> files;
  for (const std::string& name : corpus.files) {
    Result<TokenFile> file = TokenFile::open(name);
    if (!file.ok()) return file.error();
    files.push_back(*std::move(file));
  }
  return files;
}

// What a file is asked for.
struct Share {
  Range pieces;
  std::optional<std::int64_t> samples;  // nothing: one epoch
};

Result<std::vector<Share>> shares_of(const std::vector<TokenFile>& files, const Shares& shares,
                                     Split split) {
  std::vector<Share> result;
  for (const TokenFile& file : files) {
    const Range pieces = split_bounds(shares, file.pieces())[static_cast<std::size_t>(split)];
    if (pieces.size() == 0)
      return Error{Code::kTooLittleData,
                   join_parts(what_of(file, split), " is empty: of ", with_commas(file.documents()),
                              " documents none falls to it"),
                   "give this split a larger share of data.split, or add documents"};
    result.push_back({pieces, std::nullopt});
  }
  return result;
}

// Samples of one epoch of each file.
std::vector<double> epoch_samples(const std::vector<TokenFile>& files,
                                  const std::vector<Share>& shares, std::int64_t seq) {
  std::vector<double> counts;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Range& pieces = shares[i].pieces;
    const std::int64_t tokens =
        files[i].tokens_before(pieces.end) - files[i].tokens_before(pieces.begin);
    counts.push_back(static_cast<double>(std::max<std::int64_t>(0, (tokens - 1) / seq)));
  }
  return counts;
}

}  // namespace

struct CorpusTokens::State {
  Demand demand;
  std::vector<TokenFile> files;
  std::vector<Range> pieces;
  std::vector<SampleOrder> orders;
  std::optional<Blend> blend;  // nothing: one file without a weight
  std::vector<Part> parts;
  std::int64_t samples = 0;
  Hash128 digest;
  std::optional<ReadAhead> ahead;

  // Gives each file its weight and its request. Megatron: weights are normalised for the requests,
  // and once more for the choices; without weights, files count by their samples in one epoch.
  std::vector<double> weigh(const Corpus& corpus, std::vector<Share>& shares) const {
    if (files.size() == 1 && corpus.weights.empty()) {
      if (demand.samples > 0) shares[0].samples = demand.samples;
      return {};
    }
    const bool is_given = !corpus.weights.empty();
    std::vector<double> counts = epoch_samples(files, shares, demand.seq);
    double all = 0;
    for (const double count : counts) all += count;
    if (!is_given && all == 0) return counts;  // the first order is refused
    const bool is_within_epoch = !is_given && static_cast<double>(demand.samples) <= all;
    std::vector<double> once = normalised(is_given ? corpus.weights : counts);
    if (is_within_epoch) return once;
    if (demand.samples > 0)
      for (std::size_t i = 0; i < files.size(); ++i)
        if (once[i] > 0) shares[i].samples = blend_request(demand.samples, once[i]);
    return normalised(once);
  }

  std::optional<Error> lay_out(const Corpus& corpus, Split split, std::vector<Share>& shares) {
    const std::vector<double> weights = weigh(corpus, shares);
    std::vector<std::int64_t> limits;
    for (std::size_t i = 0; i < files.size(); ++i) {
      Result<SampleOrder> order = SampleOrder::build(files[i].lengths(), shares[i].pieces,
                                                     {demand.seq, shares[i].samples, corpus.seed},
                                                     what_of(files[i], split));
      if (!order.ok()) return order.error();
      pieces.push_back(shares[i].pieces);
      orders.push_back(*std::move(order));
      limits.push_back(orders[i].samples());
    }
    if (weights.empty()) {
      samples = demand.samples > 0 ? demand.samples : orders[0].samples();
    } else {
      std::int64_t all = 0;
      for (const std::int64_t limit : limits) all += limit;
      blend.emplace(weights, limits, demand.samples > 0 ? demand.samples : all);
      samples = blend->samples();
      LS_CHECK(demand.samples == 0 || samples == demand.samples, "a blend of ", demand.samples,
               " ran dry after ", samples);
    }
    describe(weights, corpus.seed);
    return std::nullopt;
  }

  void describe(const std::vector<double>& weights, std::uint32_t seed) {
    std::string text = join_parts("lockstep.order/1 ", demand.seq, " ", seed);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const SampleOrder& order = orders[i];
      parts.push_back({.file = files[i].name(),
                       .weight = weights.empty() ? 1 : weights[i],
                       .documents = pieces[i].size(),
                       .tokens = order.tokens_per_epoch(),
                       .epochs = order.epochs(),
                       .last_epoch_apart = order.last_epoch_apart(),
                       .built = order.samples(),
                       .taken = blend ? blend->taken()[i] : samples});
      const std::span<const std::byte> lengths = files[i].lengths().bytes();
      const auto width = static_cast<std::int64_t>(sizeof(std::int32_t));
      const auto own = lengths.subspan(static_cast<std::size_t>(pieces[i].begin * width),
                                       static_cast<std::size_t>(pieces[i].size() * width));
      text += join_parts(" ", pieces[i].begin, " ", to_hex(xxh3_128(own)), " ", order.epochs(), " ",
                         order.last_epoch_apart(), strf(" %a", parts[i].weight));
    }
    digest = xxh3_128(text);
  }

  // Calls `visit(file, piece, offset, count)` for the runs of tokens that make up a sample and its
  // last label.
  template <class Visit>
  void walk(std::int64_t sample, Visit visit) const {
    const Blend::Choice choice = blend ? blend->at(sample) : Blend::Choice{0, sample};
    const SampleOrder& order = orders[choice.file];
    SampleOrder::Place place = order.place(order.sample(choice.draw));
    for (std::int64_t left = demand.seq + 1; left > 0; ++place.position, place.offset = 0) {
      const std::int64_t piece = order.piece(place.position);
      const std::int64_t there = files[choice.file].lengths()[piece] - place.offset;
      const std::int64_t count = std::min(left, there);
      if (count > 0) visit(files[choice.file], piece, place.offset, count);
      left -= count;
    }
  }

  void expect(std::int64_t first, std::int64_t count) const {
    for (std::int64_t sample = first; sample < std::min(first + count, samples); ++sample)
      walk(sample, [](const TokenFile& file, std::int64_t piece, std::int64_t offset,
                      std::int64_t tokens) { file.expect(piece, offset, tokens); });
  }

  // One comparison does for negative ids too.
  void check(const TokenFile& file, std::int64_t piece, std::int64_t offset,
             std::span<const std::int64_t> tokens) const {
    const auto limit = static_cast<std::uint64_t>(demand.vocab);
    std::uint64_t largest = 0;
    for (const std::int64_t token : tokens)
      largest = std::max(largest, static_cast<std::uint64_t>(token));
    if (largest < limit || limit == 0) return;
    const auto found = std::ranges::find_if(
        tokens, [&](std::int64_t token) { return static_cast<std::uint64_t>(token) >= limit; });
    const std::int64_t document = file.document_of(piece);
    const std::int64_t in_document = file.tokens_before(piece) + offset + (found - tokens.begin()) -
                                     file.tokens_before(file.first_piece(document));
    throw IoError({Code::kTokenBeyondVocab,
                   join_parts("`", file.name(), "`, document ", document, ", token ", in_document,
                              ": id ", *found, " is not below the vocabulary of ", demand.vocab),
                   "the file was made with another tokenizer; `lockstep data verify` finds all "
                   "such documents"});
  }
};

CorpusTokens::CorpusTokens(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->ahead.emplace([state = state_.get()](std::int64_t first, std::int64_t count) {
    state->expect(first, count);
  });
}

CorpusTokens::~CorpusTokens() = default;

Result<std::unique_ptr<CorpusTokens>> CorpusTokens::open(const Corpus& corpus, Split split,
                                                         const Demand& demand) {
  LS_CHECK(demand.seq > 0 && demand.samples >= 0 && demand.vocab >= 0, "a demand of nothing");
  Result<std::vector<TokenFile>> files = open_files(corpus);
  if (!files.ok()) return files.error();
  auto state = std::make_unique<State>();
  state->demand = demand;
  state->files = *std::move(files);
  Result<std::vector<Share>> shares = shares_of(state->files, corpus.shares, split);
  if (!shares.ok()) return shares.error();
  if (auto error = state->lay_out(corpus, split, *shares)) return *std::move(error);
  return std::unique_ptr<CorpusTokens>(new CorpusTokens(std::move(state)));
}

void CorpusTokens::read(std::int64_t sample, std::span<std::int64_t> tokens,
                        std::span<std::int64_t> labels) const {
  const auto seq = static_cast<std::size_t>(state_->demand.seq);
  LS_CHECK(sample >= 0 && sample < samples() && tokens.size() == seq && labels.size() == seq,
           "sample ", sample, " of ", samples(), ", ", tokens.size(), " tokens of ", seq);
  std::vector<std::int64_t> both(seq + 1);
  std::size_t done = 0;
  state_->walk(sample, [&](const TokenFile& file, std::int64_t piece, std::int64_t offset,
                           std::int64_t count) {
    const auto run = std::span(both).subspan(done, static_cast<std::size_t>(count));
    file.read(piece, offset, run);
    state_->check(file, piece, offset, run);
    done += run.size();
  });
  std::copy_n(both.begin(), seq, tokens.begin());
  std::copy_n(both.begin() + 1, seq, labels.begin());
}

std::int64_t CorpusTokens::valid_labels(std::int64_t /*sample*/, std::int64_t seq) const {
  return seq;
}

void CorpusTokens::expect(std::int64_t first, std::int64_t count) const {
  state_->ahead->ask(first, count);
}

std::int64_t CorpusTokens::samples() const { return state_->samples; }
std::span<const Part> CorpusTokens::parts() const { return state_->parts; }
Hash128 CorpusTokens::digest() const { return state_->digest; }

ReadAhead::~ReadAhead() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void ReadAhead::ask(std::int64_t first, std::int64_t count) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
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
