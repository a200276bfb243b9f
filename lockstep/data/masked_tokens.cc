#include "lockstep/data/masked_tokens.h"

namespace lockstep::data {

bool MaskedTokens::counts(std::int64_t in_step, std::int64_t position, std::int64_t seq) const {
  const std::int64_t eighth = std::max<std::int64_t>(1, seq / 8);
  switch (mask_) {
    case LabelMask::kSome:
      return true;
    case LabelMask::kOne:
      return in_step == global_batch_ / 2 && position == seq / 2;
    case LabelMask::kSparse:
      return 2 * in_step < global_batch_ && in_step % 2 == 0 && position < eighth;
    case LabelMask::kCuts:
      return position % eighth == eighth - 1;
    case LabelMask::kButLast:
      return position < seq - 1;
  }
  return true;
}

void MaskedTokens::read(std::int64_t sample, std::span<std::int64_t> tokens,
                        std::span<std::int64_t> labels) const {
  source_->read(sample, tokens, labels);
  const std::int64_t seq = std::ssize(labels);
  for (std::int64_t i = 0; i < seq; ++i)
    if (!counts(sample % global_batch_, i, seq))
      labels[static_cast<std::size_t>(i)] = kIgnoredLabel;
}

}  // namespace lockstep::data
