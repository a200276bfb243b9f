#include "lockstep/config/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::config {
namespace {

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (c == '-' || c == '.') c = '_';
  }
  return result;
}

}  // namespace

int edit_distance(std::string_view left, std::string_view right) {
  const std::string a = folded(left);
  const std::string b = folded(right);
  std::vector<int> two_up(b.size() + 1), up(b.size() + 1), row(b.size() + 1);
  std::iota(up.begin(), up.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replace = up[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], two_up[j - 2] + 1);
    }
    two_up.swap(up);
    up.swap(row);
  }
  return up[b.size()];
}

bool is_within(int limit, std::string_view a, std::string_view b) {
  const std::size_t gap = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  return gap <= static_cast<std::size_t>(limit) && edit_distance(a, b) <= limit;
}

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> names,
                                 std::size_t limit) {
  const int allowed = word.size() <= 3 ? 1 : 2;
  std::vector<std::pair<int, std::string>> found;
  for (const std::string& name : names) {
    if (!is_within(allowed, word, name)) continue;
    // Two edits turn a two-letter word into any other, so short names ask for a shared letter.
    const int distance = edit_distance(word, name);
    if (distance == 0 && !name.empty()) return {name};
    if (distance < static_cast<int>(std::max(word.size(), name.size())))
      found.emplace_back(distance, name);
  }
  if (found.empty() && word.size() >= 2)
    for (const std::string& name : names)
      if (folded(name).starts_with(folded(word))) found.emplace_back(0, name);
  std::ranges::stable_sort(found, {}, &std::pair<int, std::string>::first);
  std::vector<std::string> result;
  for (auto& [distance, name] : found)
    if (result.size() < limit) result.push_back(std::move(name));
  return result;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string otherwise) {
  const std::vector<std::string> close = nearest(word, names);
  return close.empty() ? otherwise : "did you mean " + listed(close, "or") + "?";
}

std::string listed(std::span<const std::string> names, std::string_view last_word) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? join_parts(" ", last_word, " ") : ", ";
    text += join_parts("`", names[i], "`");
  }
  return text;
}

std::string there_are(std::span<const std::string> names) {
  return join_parts(names.size() == 1 ? "there is " : "there are ", listed(names));
}

}  // namespace lockstep::config
