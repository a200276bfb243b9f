#include "lockstep/data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::data {
namespace {

// numpy's pairwise summation: halves, of which those of at most 128 are taken in eight strands.
double numpy_sum(std::span<const double> x) {
  constexpr std::size_t kStrands = 8, kBlock = 128;
  if (x.size() < kStrands) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum;
  }
  if (x.size() > kBlock) {
    const std::size_t half = x.size() / 2 / kStrands * kStrands;
    return numpy_sum(x.first(half)) + numpy_sum(x.subspan(half));
  }
  std::array<double, kStrands> r;
  for (std::size_t i = 0; i < kStrands; ++i) r[i] = x[i];
  std::size_t i = kStrands;
  for (; i + kStrands <= x.size(); i += kStrands)
    for (std::size_t strand = 0; strand < kStrands; ++strand) r[strand] += x[i + strand];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < x.size(); ++i) sum += x[i];
  return sum;
}

constexpr std::int64_t kSamplesPerSum = 4096;
constexpr double kSurplus = 1 + 0.005;  // Megatron's default

constexpr std::int64_t kPiecesPerSum = 32;
constexpr std::int64_t kMostSamples = std::numeric_limits<std::uint32_t>::max() - std::int64_t{1};
constexpr std::int64_t kMostPositions = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int64_t>::max() / 2;
constexpr double kWholeEnough = 0.80;  // Megatron's threshold

std::int64_t sum_of(const PieceLengths& lengths, const Range& pieces) {
  std::int64_t sum = 0;
  for (std::int64_t piece = pieces.begin; piece < pieces.end; ++piece) sum += lengths[piece];
  return sum;
}

Error too_little(const std::string& message, const std::string& help) {
  return {Code::kTooLittleData, message, help};
}

}  // namespace

Result<SampleOrder> SampleOrder::build(const PieceLengths& lengths, const Range& pieces,
                                       const OrderDemand& demand, const std::string& what) {
  LS_CHECK(demand.seq > 0 && demand.samples.value_or(1) > 0, "a demand of nothing");
  SampleOrder order;
  order.lengths_ = lengths;
  order.seq_ = demand.seq;
  const std::int64_t tokens = order.tokens_per_epoch_ = sum_of(lengths, pieces);
  if (tokens < 2 || (!demand.samples && tokens <= demand.seq))
    return too_little(
        join_parts(what, " has ", with_commas(tokens), " tokens in ", with_commas(pieces.size()),
                   " documents; one sample takes ", with_commas(demand.seq + 1)),
        "add text, shorten batch.seq, or give this split a larger share");
  const std::int64_t asked = demand.samples.value_or(0);
  if (asked > std::min(kMostSamples, kMostTokens / demand.seq))
    return too_little(join_parts(with_commas(asked), " samples of ", what, "; at most ",
                                 with_commas(kMostSamples), " can be numbered"),
                      "divide the text into several files, or shorten the run");
  if (demand.samples) order.epochs_ = asked * demand.seq / tokens + 1;
  const std::int64_t samples = (order.epochs_ * tokens - 1) / demand.seq;
  if (order.epochs_ > kMostPositions / std::max<std::int64_t>(1, pieces.size()) ||
      samples > kMostSamples)
    return too_little(
        join_parts(with_commas(order.epochs_), " epochs over the ", with_commas(pieces.size()),
                   " documents of ", what, " are more than can be numbered"),
        "shorten the run, or merge short documents");
  const std::int64_t before_last = ((order.epochs_ - 1) * tokens - 1) / demand.seq;
  const std::int64_t per_epoch = (tokens - 1) / demand.seq;
  order.last_epoch_apart_ =
      order.epochs_ > 1 && asked - before_last < static_cast<std::int64_t>(
                                                     kWholeEnough * static_cast<double>(per_epoch));
  order.lay_out(pieces, before_last, samples, demand.seed);
  return order;
}

void SampleOrder::lay_out(const Range& pieces, std::int64_t samples_before_last,
                          std::int64_t samples, std::uint32_t seed) {
  NumpyRandom random(seed);
  const auto shuffle_parts = [&](auto all, std::int64_t first) {
    const auto cut = static_cast<std::size_t>(first);
    random.shuffle(all.first(last_epoch_apart_ ? cut : all.size()));
    if (last_epoch_apart_) random.shuffle(all.subspan(cut));
  };
  document_index_.resize(pieces.size() * epochs_);
  for (auto epoch = document_index_.begin(); epoch != document_index_.end(); epoch += pieces.size())
    std::iota(epoch, epoch + pieces.size(), static_cast<std::int32_t>(pieces.begin));
  shuffle_parts(std::span(document_index_), pieces.size() * (epochs_ - 1));

  sums_.reserve(document_index_.size() / kPiecesPerSum + 1);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < document_index_.size(); ++i) {
    if (i % kPiecesPerSum == 0) sums_.push_back(sum);
    sum += lengths_[document_index_[i]];
  }

  shuffle_.resize(samples);
  std::iota(shuffle_.begin(), shuffle_.end(), 0U);
  shuffle_parts(std::span(shuffle_), samples_before_last);
}

SampleOrder::Place SampleOrder::place(std::int64_t sample) const {
  if (sample == 0) return {};  // even where the first piece has no token
  const std::int64_t token = sample * seq_;
  const auto after = std::upper_bound(sums_.begin(), sums_.end(), token);
  Place place{(after - sums_.begin() - 1) * kPiecesPerSum, token - *(after - 1)};
  for (;; ++place.position) {
    const std::int32_t length = lengths_[piece(place.position)];
    if (place.offset < length) return place;
    place.offset -= length;
  }
}

std::string_view to_text(Split split) {
  constexpr std::string_view kNames[] = {"train", "validation", "test"};
  return kNames[static_cast<std::size_t>(split)];
}

std::vector<double> normalised(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  LS_CHECK(sum > 0 && std::isfinite(sum), "weights add up to ", sum);
  std::vector<double> result(weights.begin(), weights.end());
  for (double& weight : result) weight /= sum;
  return result;
}

std::array<Range, 3> split_bounds(const Shares& shares, std::int64_t pieces) {
  const std::vector<double> parts = normalised(shares);
  std::array<Range, 3> ranges;
  double share = 0;
  std::int64_t bound = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    share += parts[i];
    // llrint rounds half to even, the mode every program starts in.
    const std::int64_t end = std::llrint(share * static_cast<double>(pieces));
    ranges[i] = {bound, end};
    bound = end;
  }
  return ranges;
}

std::int64_t blend_request(std::int64_t samples, double weight) {
  const double share = std::ceil(static_cast<double>(samples) * weight);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(share * kSurplus)));
}

Blend::Blend(std::span<const double> weights, std::span<const std::int64_t> limits,
             std::int64_t samples)
    : taken_(weights.size()) {
  LS_CHECK(!weights.empty() && weights.size() == limits.size() && weights.size() < 32767,
           weights.size(), " files in a blend with ", limits.size(), " limits");
  files_.reserve(samples);
  std::vector<double> counts(weights.size());  // taken_, as reals
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    if (sample % kSamplesPerSum == 0) sums_.insert(sums_.end(), taken_.begin(), taken_.end());
    const double so_far = std::max(static_cast<double>(sample), 1.0);
    std::size_t most = 0;
    double lack = weights[0] * so_far - counts[0];
    for (std::size_t file = 1; file < weights.size(); ++file) {
      const double own = weights[file] * so_far - counts[file];
      if (own > lack) lack = own, most = file;
    }
    if (taken_[most] >= limits[most]) return;
    files_.push_back(static_cast<std::uint16_t>(most));
    counts[most] += 1;
    ++taken_[most];
  }
}

Blend::Choice Blend::at(std::int64_t sample) const {
  const std::size_t file = files_[sample];
  const std::int64_t block = sample / kSamplesPerSum;
  const auto first = files_.begin() + block * kSamplesPerSum, last = files_.begin() + sample;
  const std::int64_t before = sums_[static_cast<std::size_t>(block) * taken_.size() + file];
  return {file, before + std::count(first, last, static_cast<std::uint16_t>(file))};
}

}  // namespace lockstep::data
