#include "lockstep/data/token_source.h"

#include <algorithm>
#include <vector>

namespace lockstep::data {

std::int64_t TokenSource::valid_labels(std::int64_t sample, std::int64_t seq) const {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(seq)), labels(tokens.size());
  read(sample, tokens, labels);
  return seq - std::ranges::count(labels, kIgnoredLabel);
}

}  // namespace lockstep::data
