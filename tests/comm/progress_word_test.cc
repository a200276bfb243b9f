#include "lockstep/comm/progress_word.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::comm {
namespace {

constexpr int kWorld = 4;

using Random = std::mt19937_64;

int below(Random& random, int end) {
  return std::uniform_int_distribution<int>(0, end - 1)(random);
}

// Of a rank as it could be.
ProgressWord honest_word(Random& random) {
  ProgressWord word;
  word.beat = static_cast<std::uint64_t>(below(random, 3));
  if (below(random, 3) > 0) {
    word.waits_for = Rank{below(random, kWorld)};
    word.operation = "all_gather on group a";
  }
  word.knows_verdict = below(random, 4) == 0;
  if (below(random, 2) == 0)
    word.position = Position{below(random, 9), below(random, 99), below(random, 2) == 0,
                             below(random, 2) == 0, below(random, 40)};
  return word;
}

std::string forged_number(Random& random) {
  static const std::vector<std::string> all = {
      "-1", "-2", "0",          "1",           "2",          "3",
      "4",  "5",  "100000000",  "2147483647",  "2147483648", "-2147483648",
      "01", "+1", "4294967295", "-4294967296", "1e3",        "18446744073709551616",
      "",   "x",  "0x1",        "1 1"};
  return all[static_cast<std::size_t>(below(random, static_cast<int>(all.size())))];
}

// Numbers that no rank has, other bytes, cut or longer.
std::string forge(Random& random, std::string text) {
  switch (below(random, 5)) {
    case 0: {
      const auto begin = text.find_first_not_of(' ', text.find(' ', text.size() / 4));
      if (begin == text.npos) return forged_number(random);
      const auto end = text.find(' ', begin);
      return text.replace(begin, end == text.npos ? end : end - begin, forged_number(random));
    }
    case 1: {
      std::string made;
      for (int i = below(random, 9); i > 0; --i) made += forged_number(random) + " ";
      return made;
    }
    case 2:
      text[static_cast<std::size_t>(below(random, static_cast<int>(text.size())))] =
          static_cast<char>(below(random, 256));
      return text;
    case 3:
      return text.substr(0, static_cast<std::size_t>(below(random, static_cast<int>(text.size()))));
    default:
      return text + std::string(static_cast<std::size_t>(below(random, 9999)), 'x');
  }
}

bool is_of_world(Rank rank) { return rank.value >= 0 && rank.value < kWorld; }

TEST(ProgressWord, TextIsReadAsWritten) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const ProgressWord word = honest_word(random);
    EXPECT_EQ(parse_word(to_text(word), kWorld), word) << to_text(word);
  }
  EXPECT_EQ(
      to_text(ProgressWord{17, Rank{2}, true, Position{4, 5, true, false, 6}, "recv on group c"}),
      "17 2 1 4 5 6 1 recv on group c");
  EXPECT_EQ(to_text(ProgressWord{}), "0 -1 0 -1 -1 0 0 ");
  const Blame blame = {Rank{3}, "rank 3 shows no sign of life"};
  EXPECT_EQ(parse_blame(to_text(blame), kWorld), blame);
  EXPECT_TRUE(blame.is_silent());
}

TEST(ProgressWord, WhatNoRankOfThisWorldWritesCountsAsNeverWritten) {
  for (const char* text : {"",
                           " ",
                           "17",
                           "17 4 0 -1 -1 0 0 x",
                           "17 -2 0 -1 -1 0 0 x",
                           "17 100000000 0 -1 -1 0 0 x",
                           "17 -1 0 3 -7 0 0 ",
                           "17 -1 0 -3 7 0 0 ",
                           "17 -1 0 3 7 -1 0 ",
                           "17 -1 0 -1 -1 0 1 ",
                           "17 -1 0 -1 -1 2 0 ",
                           "17 -1 2 -1 -1 0 0 ",
                           "17 -1 0 1 2147483648 0 0 ",
                           "-17 -1 0 -1 -1 0 0 ",
                           "017 -1 0 -1 -1 0 0 ",
                           "17  -1 0 -1 -1 0 0 ",
                           "17 -1 0 -1 -1 0 0",
                           "17 -1 0 -1 -1 0 ",
                           "17 -1 0 -1 -1 0 0 \x1b[2J",
                           "17 -1 0 -1 -1 0 0 a\nb",
                           "1e9 -1 0 -1 -1 0 0 "})
    EXPECT_EQ(parse_word(text, kWorld), std::nullopt) << text;
  for (const char* text : {"", "3", "100000000 rank 5 shows no sign of life", "4 x", "-1 x", "03 x",
                           "3x", "3 \x1b[2J", "99999999999 x"})
    EXPECT_EQ(parse_blame(text, kWorld), std::nullopt) << text;
  const std::string longest(kMaxVerdict - 2, 'x');
  EXPECT_TRUE(parse_blame("3 " + longest, kWorld));
  EXPECT_FALSE(parse_blame("3 x" + longest, kWorld));
}

TEST(ProgressWord, ForgedWordsBlameARankOfTheWorld) {
  Random random(2);
  int read = 0, refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    ProgressWords words[2];
    for (ProgressWords& at : words)
      for (int rank = 0; rank < kWorld; ++rank) {
        const std::string text = to_text(honest_word(random));
        at[{rank}] = parse_word(below(random, 2) == 0 ? text : forge(random, text), kWorld);
        ++(at[{rank}] ? read : refused);
        EXPECT_TRUE(!at[{rank}] || is_of_world(at[{rank}]->waits_for.value_or(Rank{0})));
      }
    const Blame own =
        follow_waits(Rank{below(random, kWorld)}, Rank{below(random, kWorld)}, words[0], words[1]);
    EXPECT_TRUE(is_of_world(own.rank));
    EXPECT_EQ(parse_blame(to_text(own), kWorld), own);
    const auto verdict = parse_blame(forge(random, to_text(own)), kWorld);
    for (const auto& blame : {std::optional(own), verdict}) {
      const auto last_seen = to_last_seen(words[1], blame, kWorld);
      ASSERT_EQ(last_seen.size(), static_cast<std::size_t>(kWorld));
      for (const LastSeen& one : last_seen)
        EXPECT_TRUE(!one.position || (one.position->step >= 0 && one.position->op >= 0));
    }
  }
  EXPECT_TRUE(read > 4000 && refused > 4000) << read << " read, " << refused << " refused";
}

TEST(ProgressWord, WaitsAreFollowedToTheSilentRank) {
  const ProgressWord waits_for_one{7, Rank{1}, false, {}, "all_gather on group a"};
  const ProgressWord idle{7, {}, false, {}, ""};
  ProgressWords before = {{{0}, waits_for_one}, {{1}, idle}, {{2}, idle}, {{3}, idle}};
  ProgressWords after = before;
  for (auto& [rank, word] : after) word->beat = 9;
  EXPECT_EQ(follow_waits(Rank{2}, Rank{0}, before, after).verdict,
            "rank 1 is alive but does not take part");
  after[Rank{3}] = before[Rank{3}];  // not on the way, but no longer there
  EXPECT_EQ(follow_waits(Rank{2}, Rank{0}, before, after).rank, Rank{3});
  after[Rank{1}] = std::nullopt;
  EXPECT_EQ(follow_waits(Rank{2}, Rank{0}, before, after).verdict, "rank 1 shows no sign of life");
  // Of a large world only the suspect is looked at.
  EXPECT_EQ(follow_waits(Rank{2}, Rank{0}, {{{0}, waits_for_one}},
                         {{{0}, ProgressWord{9, Rank{1}, false, {}, "barrier on group b"}}})
                .verdict,
            "rank 0 is alive but waits for rank 1 in barrier on group b");
  after[Rank{1}] = ProgressWord{};
  EXPECT_EQ(follow_waits(Rank{2}, Rank{1}, before, {{{1}, ProgressWord{}}}).verdict,
            "rank 1 has left the job");
}

}  // namespace
}  // namespace lockstep::comm
