// Lines of any bytes as what ranks left in the store: each is read as it is written again or not at
// all, and whoever is blamed is a rank of the world. The first byte is the number of ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/comm/progress_word.h"

namespace {

using namespace lockstep;

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int world = 1 + data[0] % 8;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  comm::ProgressWords before, after;
  for (comm::ProgressWords* words : {&before, &after})
    for (int rank = 0; rank < world; ++rank) {
      const std::string_view line = next_line(text);
      const auto word = comm::parse_word(line, world);
      check(!word || comm::to_text(*word) == line);
      (*words)[Rank{rank}] = word;
    }
  const auto verdict = comm::parse_blame(text, world);
  check(!verdict || comm::to_text(*verdict) == text);
  for (int asker = 0; asker < world; ++asker)
    for (int suspect = 0; suspect < world; ++suspect) {
      const comm::Blame blame = comm::follow_waits(Rank{asker}, Rank{suspect}, before, after);
      check(comm::parse_blame(comm::to_text(blame), world) == blame);
      check(comm::to_last_seen(after, blame, world).size() == static_cast<std::size_t>(world));
    }
  (void)comm::to_last_seen(after, verdict, world);
  return 0;
}
