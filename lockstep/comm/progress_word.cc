#include "lockstep/comm/progress_word.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "lockstep/base/check.h"

namespace lockstep::comm {
namespace {

constexpr std::string_view kSilent = " shows no sign of life";

std::string name_of(Rank rank) { return "rank " + std::to_string(rank.value); }

// Takes "<number> " off the front.
template <class Number>
bool take(std::string_view& text, Number& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto size = static_cast<std::size_t>(end - text.data());
  if (status != std::errc() || size >= text.size() || text[size] != ' ') return false;
  text.remove_prefix(size + 1);
  return true;
}

// It ends in an error message on somebody's terminal.
bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

bool Blame::is_silent() const { return verdict.ends_with(kSilent); }

Blame silent(Rank rank) { return {rank, name_of(rank) + std::string(kSilent)}; }

// "<beat> <rank waited for, or -1> <1 when the verdict is known> <step> <op> <part> <1 when it
// waits there, 2 more in an evaluation> <operation>", step and op -1 where there is no position.
std::string to_text(const ProgressWord& word) {
  const Position at = word.position.value_or(Position{-1, -1});
  return join_parts(word.beat, ' ', word.waits_for.value_or(Rank{-1}).value, ' ',
                    int{word.knows_verdict}, ' ', at.step, ' ', at.op, ' ', at.part, ' ',
                    int{at.waits} + 2 * int{at.evaluates}, ' ', word.operation);
}

std::optional<ProgressWord> parse_word(std::string_view text, int world) {
  std::string_view rest = text;
  ProgressWord word;
  Rank peer;
  Position at;
  int knows = 0, waits = 0;
  if (text.size() > kMaxWord || !take(rest, word.beat) || !take(rest, peer.value) ||
      !take(rest, knows) || !take(rest, at.step) || !take(rest, at.op) || !take(rest, at.part) ||
      !take(rest, waits))
    return std::nullopt;
  at.waits = (waits & 1) != 0;
  at.evaluates = (waits & 2) != 0;
  word.knows_verdict = knows == 1;
  word.operation = rest;
  if (peer.value >= 0) word.waits_for = peer;
  if (at.step >= 0 && at.op >= 0 && at.part >= 0) word.position = at;
  if (peer.value >= world || !is_printable(rest) || to_text(word) != text) return std::nullopt;
  return word;
}

// "<rank> <sentence>".
std::string to_text(const Blame& blame) { return join_parts(blame.rank.value, ' ', blame.verdict); }

std::optional<Blame> parse_blame(std::string_view text, int world) {
  Blame blame;
  std::string_view rest = text;
  if (text.size() > kMaxVerdict || !take(rest, blame.rank.value)) return std::nullopt;
  blame.verdict = rest;
  const bool is_known = blame.rank.value >= 0 && blame.rank.value < world;
  if (!is_known || !is_printable(rest) || to_text(blame) != text) return std::nullopt;
  return blame;
}

Blame follow_waits(Rank asker, Rank suspect, const ProgressWords& before,
                   const ProgressWords& after) {
  const auto is_silent = [&](Rank rank) {
    const auto& word = after.at(rank);
    if (!word) return true;
    const auto& earlier = before.at(rank);
    return word->beat != 0 && earlier && word->beat == earlier->beat && !word->knows_verdict;
  };
  std::set<Rank> seen;
  Blame last;
  for (Rank rank = suspect;;) {
    if (is_silent(rank)) return silent(rank);
    seen.insert(rank);
    const ProgressWord& word = *after.at(rank);
    last = {rank, name_of(rank) + " is alive but does not take part"};
    if (word.beat == 0)
      last.verdict = name_of(rank) + " has left the job";
    else if (word.waits_for)
      last.verdict = name_of(rank) + " is alive but waits for " + name_of(*word.waits_for) +
                     " in " + word.operation;
    const Rank next = word.waits_for.value_or(asker);
    if (next == asker || seen.contains(next) || !after.contains(next)) break;
    rank = next;
  }
  for (const auto& [rank, word] : after)
    if (rank != asker && is_silent(rank)) return silent(rank);
  return last;
}

std::vector<LastSeen> to_last_seen(const ProgressWords& words, const std::optional<Blame>& blame,
                                   int world) {
  std::vector<LastSeen> all(world);
  for (const auto& [rank, word] : words)
    if (word) all.at(static_cast<std::size_t>(rank.value)).position = word->position;
  if (blame && blame->is_silent()) all.at(blame->rank.value).is_silent = true;
  return all;
}

}  // namespace lockstep::comm
