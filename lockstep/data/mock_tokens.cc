#include "lockstep/data/mock_tokens.h"

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 32;  // indices of one sample
constexpr double kNoise = 0.1;

}  // namespace

MockTokens::MockTokens(std::uint64_t seed, std::int64_t vocab, bool ignore_some, std::int64_t first)
    : tokens_(seed, "mock.tokens"),
      choices_(seed, "mock.choices"),
      ignored_(seed, "mock.ignored"),
      vocab_(vocab),
      first_(first),
      ignore_some_(ignore_some) {
  LS_CHECK(vocab >= 2, "a vocabulary of ", vocab);
}

void MockTokens::read(std::int64_t sample, std::span<std::int64_t> tokens,
                      std::span<std::int64_t> labels) const {
  LS_CHECK(tokens.size() == labels.size() && tokens.size() < kMaxLength, "a sample of ",
           tokens.size(), " tokens and ", labels.size(), " labels");
  const std::uint64_t base = static_cast<std::uint64_t>(first_ + sample) * kMaxLength;
  const auto bound = static_cast<std::uint64_t>(vocab_);
  const double share = 0.5 * ignored_.uniform(base + kMaxLength - 1);
  auto token = static_cast<std::int64_t>(tokens_.below(bound, base));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = token;
    const bool is_noise = choices_.uniform(base + i) < kNoise;
    token = is_noise ? static_cast<std::int64_t>(tokens_.below(bound, base + i + 1))
                     : (3 * token + 1) % vocab_;
    labels[i] = ignore_some_ && ignored_.uniform(base + i) < share ? kIgnoredLabel : token;
  }
}

std::int64_t MockTokens::valid_labels(std::int64_t sample, std::int64_t seq) const {
  return ignore_some_ ? TokenSource::valid_labels(sample, seq) : seq;
}

}  // namespace lockstep::data
