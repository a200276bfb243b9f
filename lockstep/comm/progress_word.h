// What ranks leave about themselves in the store, and what it says about who is to blame. Anybody
// who reaches the store can write there, so text is read strictly: it is what to_text makes for a
// rank of this world, or it counts as never written. Nothing here knows the store; any thread may
// call it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/comm/position.h"

namespace lockstep::comm {

// Of one rank: that it lives, where it is, and whom it waits for.
struct ProgressWord {
  std::uint64_t beat = 0;              // another with every word; 0 after leaving
  std::optional<Rank> waits_for = {};  // the oldest of its waits
  bool knows_verdict = false;
  std::optional<Position> position = {};  // of a program that is not known here
  std::string operation = {};             // in which it waits
  bool operator==(const ProgressWord&) const = default;
};

struct Blame {
  Rank rank = {};
  std::string verdict = {};  // "rank 3 shows no sign of life", "rank 2 is alive but ..."
  bool is_silent() const;    // whether it is the former
  bool operator==(const Blame&) const = default;
};

Blame silent(Rank rank);  // "rank 3 shows no sign of life"

// Bytes of text that are read; a verdict may quote a word's operation.
constexpr std::size_t kMaxWord = 2048;
constexpr std::size_t kMaxVerdict = 2 * kMaxWord;

std::string to_text(const ProgressWord& word);
std::string to_text(const Blame& blame);
// Nothing for what to_text does not make of printable ASCII and ranks in [0, world), and for more
// than the above.
std::optional<ProgressWord> parse_word(std::string_view text, int world);
std::optional<Blame> parse_blame(std::string_view text, int world);

// By rank, of those that were looked at; nothing where none was written.
using ProgressWords = std::map<Rank, std::optional<ProgressWord>>;

// Who holds up `suspect`, by words read twice, longer than a few beats apart. Along the waits to a
// rank that is silent; members of one collective wait for several ranks at once and name only one,
// so where the chain ends among the living, any silent rank but `asker` is the better answer.
// REQUIRES: both are of the same ranks, `suspect` among them.
Blame follow_waits(Rank asker, Rank suspect, const ProgressWords& before,
                   const ProgressWords& after);

// One sighting for each rank of the world.
std::vector<LastSeen> to_last_seen(const ProgressWords& words, const std::optional<Blame>& blame,
                                   int world);

}  // namespace lockstep::comm
