#include "lockstep/draw/stack_bars.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/draw/runs.h"

namespace lockstep::draw {
namespace {

std::vector<StackBar> joined(const Stacks& stacks) {
  std::vector<StackBar> bars;
  std::string first;
  for (const StackRow& row : stacks.rows) {
    LS_CHECK(row.sizes.size() == stacks.parts.size(), "a row has a size for each part");
    if (!bars.empty() && bars.back().sizes == row.sizes && bars.back().note == row.note) {
      bars.back().label = first + "-" + row.label;
      continue;
    }
    first = row.label;
    bars.push_back(
        {row.label, row.sizes, row.note, std::accumulate(row.sizes.begin(), row.sizes.end(), 0.0)});
  }
  return bars;
}

}  // namespace

StackBars stack_bars(const Stacks& stacks, int most) {
  LS_CHECK(!stacks.rows.empty() && stacks.parts.size() <= kMostStackParts, "stacks of ",
           stacks.rows.size(), " rows and ", stacks.parts.size(), " parts");
  std::vector<StackBar> all = joined(stacks);
  StackBars found;
  const auto longest =
      static_cast<std::size_t>(std::ranges::max_element(all, {}, &StackBar::total) - all.begin());
  const double most_held = all[longest].total;
  found.limit_is_far = stacks.limit > 20 * most_held;
  found.extent = found.limit_is_far ? most_held : std::max(stacks.limit, most_held);
  std::vector<std::size_t> kept = shown(all.size(), most);
  if (!std::ranges::binary_search(kept, longest))
    kept.insert(std::ranges::upper_bound(kept, longest), longest);
  if (kept.size() < all.size())
    found.left_out = "shown are " + std::to_string(kept.size()) + " of " +
                     std::to_string(all.size()) + " bars, the last and the longest among them";
  for (const std::size_t i : kept) found.bars.push_back(std::move(all[i]));
  return found;
}

bool has_part(const Stacks& stacks, std::size_t part) {
  return std::ranges::any_of(stacks.rows,
                             [part](const StackRow& row) { return row.sizes[part] > 0; });
}

const StackColour& stack_colour(std::size_t part) {
  static constexpr StackColour kColours[kMostStackParts] = {
      {"#00548c", 25, true},   {"#4f9bd0", 74, false},  {"#b3d4ec", 153, false},
      {"#d55e00", 166, false}, {"#f0b429", 214, false}, {"#8a8a8a", 245, false},
      {"#d4d4d4", 252, false}};
  return kColours[part];
}

}  // namespace lockstep::draw
