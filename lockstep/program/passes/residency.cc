#include "lockstep/program/passes/residency.h"

#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::program {
namespace {

constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

// For each use, the index of the same unit's next one.
std::vector<std::int32_t> next_uses(std::span<const std::int32_t> uses) {
  std::vector<std::int32_t> next(uses.size(), kNever);
  std::unordered_map<std::int32_t, std::int32_t> later;
  for (std::size_t i = uses.size(); i-- > 0;) {
    if (const auto found = later.find(uses[i]); found != later.end()) next[i] = found->second;
    later[uses[i]] = static_cast<std::int32_t>(i);
  }
  return next;
}

}  // namespace

std::vector<Stay> farthest_next_use(std::span<const std::int32_t> uses, int capacity) {
  LS_CHECK(capacity >= 1, "capacity ", capacity);
  const std::vector<std::int32_t> next = next_uses(uses);
  std::vector<Stay> stays;
  std::set<std::pair<std::int32_t, std::size_t>> kept;  // next use, index of the stay
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const auto now = static_cast<std::int32_t>(i);
    std::size_t stay = stays.size();
    if (!kept.empty() && kept.begin()->first == now) {
      stay = kept.begin()->second;
      kept.erase(kept.begin());
    } else {
      if (kept.size() == static_cast<std::size_t>(capacity)) kept.erase(std::prev(kept.end()));
      stays.push_back({uses[i], now, now});
    }
    stays[stay].last = now;
    if (next[i] != kNever) kept.insert({next[i], stay});
  }
  return stays;
}

}  // namespace lockstep::program
