// "Did you mean ...?": the names closest to what was written.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, no
// part being edited twice (optimal string alignment). ASCII case and the choice of '-', '_' or '.'
// do not count.
int edit_distance(std::string_view a, std::string_view b);

// edit_distance(a, b) <= limit, without the work when the lengths alone rule it out.
bool is_within(int limit, std::string_view a, std::string_view b);

// The names within 2 edits of `word` (1 for words of up to 3 letters), nearest first, equal ones in
// the given order, or the one that differs in no letter alone; failing those, names that begin with
// it. At most `limit`.
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> names,
                                 std::size_t limit = 3);

// "did you mean `a`?", "did you mean `a` or `b`?"; `otherwise` when nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string otherwise = "");

// "a, b and c" with each name in backquotes.
std::string listed(std::span<const std::string> names, std::string_view last_word = "and");

// "there are `check`, `show` and `fields`", "there is `comm`".
std::string there_are(std::span<const std::string> names);

}  // namespace lockstep::config
