#include "lockstep/config/suggest.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::config {
namespace {

const std::vector<std::string> kNames = {"layers", "hidden", "heads", "kv_heads", "tp", "pp", "dp"};

std::string random_word(std::mt19937& random) {
  std::string word(1 + random() % 8, 'a');
  for (char& c : word) c = static_cast<char>('a' + random() % 4);
  return word;
}

// One random insertion, deletion, replacement or swap.
std::string edited(std::string word, std::mt19937& random) {
  const std::size_t at = random() % word.size();
  const char letter = static_cast<char>('a' + random() % 4);
  switch (random() % 4) {
    case 0:
      return word.insert(at, 1, letter);
    case 1:
      return word.erase(at, 1);
    case 2:
      word[at] = letter;
      return word;
    default:
      if (at + 1 < word.size()) std::swap(word[at], word[at + 1]);
      return word;
  }
}

TEST(EditDistance, IsSymmetricAndCountsEdits) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::string a = random_word(random);
    const std::string b = random_word(random);
    const int length_gap = std::abs(static_cast<int>(a.size()) - static_cast<int>(b.size()));
    EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << ' ' << b;
    EXPECT_EQ(edit_distance(a, b) == 0, a == b) << a << ' ' << b;
    EXPECT_GE(edit_distance(a, b), length_gap) << a << ' ' << b;
    EXPECT_LE(edit_distance(a, edited(a, random)), 1) << a;
  }
}

TEST(EditDistance, KnowsTheClassicExamples) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("layres", "layers"), 1);  // a swap is one edit
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("Global-Batch", "global_batch"), 0);
}

TEST(Nearest, FindsMisspeltNamesAndNothingFarAway) {
  EXPECT_EQ(nearest("layrs", kNames), std::vector<std::string>{"layers"});
  EXPECT_EQ(nearest("hedas", kNames), std::vector<std::string>{"heads"});
  EXPECT_TRUE(nearest("optimizer", kNames).empty());
  EXPECT_TRUE(nearest("", kNames).empty());
}

TEST(Nearest, PutsTheClosestFirstAndCompletesPrefixes) {
  const std::vector<std::string> names = {"abcdef", "abcdxx", "abcdefx"};
  EXPECT_EQ(nearest("abcdeg", names).front(), "abcdef");
  EXPECT_EQ(nearest("ABCDEF", names), std::vector<std::string>{"abcdef"});
  EXPECT_EQ(nearest("hid", kNames), std::vector<std::string>{"hidden"});
}

TEST(Nearest, DoesNotOfferShortNamesThatShareNoLetter) {
  EXPECT_TRUE(nearest("x", kNames).empty());
  EXPECT_EQ(nearest("tpp", kNames).front(), "tp");
}

TEST(DidYouMean, ReadsAsASentence) {
  EXPECT_EQ(did_you_mean("layrs", kNames), "did you mean `layers`?");
  EXPECT_EQ(did_you_mean("zzzzzz", kNames), "");
  EXPECT_EQ(listed(std::vector<std::string>{"a", "b", "c"}), "`a`, `b` and `c`");
}

}  // namespace
}  // namespace lockstep::config
