#include "lockstep/data/token_scan.h"

#include <gtest/gtest.h>

#include "tests/data/pairs.h"

namespace lockstep::data {
namespace {

Scan scanned(const std::string& name, const ScanWish& wish) {
  const auto file = TokenFile::open(name);
  EXPECT_TRUE(file.ok());
  return scan(*file, wish, [](double) {});
}

TEST(TokenScan, FindsTheFirstIdBeyondAndCountsDocuments) {
  const std::string name = fresh_folder() + "a";
  write_pair(name, {{1, 2}, {3, 9, 9}, {}, {10}, {4}}, TokenType::kI32);
  const Scan good = scanned(name, {.vocab = 11});
  EXPECT_TRUE(good.is_good());
  EXPECT_EQ(good.largest, 10);
  const Scan bad = scanned(name, {.vocab = 9});
  EXPECT_EQ(bad.documents_beyond, 2);
  EXPECT_EQ(bad.first_beyond->document, 1);
  EXPECT_EQ(bad.first_beyond->token, 1);
  EXPECT_EQ(bad.first_beyond->id, 9);
}

TEST(TokenScan, NegativeIdsAreInNoVocabulary) {
  const std::string name = fresh_folder() + "a";
  write_pair(name, {{1}, {-1}}, TokenType::kI64);
  for (const std::int64_t vocab : {0, 100})
    EXPECT_EQ(scanned(name, {.vocab = vocab}).first_beyond->id, -1);
}

TEST(TokenScan, EveryDocumentEndsAsAsked) {
  const std::string name = fresh_folder() + "a";
  write_pair(name, {{1, 7}, {7}, {7, 1}, {}});
  const Scan found = scanned(name, {.vocab = 8, .end = 7});
  EXPECT_EQ(found.documents_unended, 2);
  EXPECT_EQ(found.first_unended, 2);
  EXPECT_FALSE(found.is_good());
}

// Longer than a block of the scan, with the fault in the last token.
TEST(TokenScan, LooksAtEveryTokenOfLongDocuments) {
  const std::string name = fresh_folder() + "a";
  std::vector<std::int64_t> longer(200'001, 5);
  longer.back() = 6;
  write_pair(name, {{1}, longer});
  const Scan found = scanned(name, {.vocab = 6});
  EXPECT_EQ(found.first_beyond->document, 1);
  EXPECT_EQ(found.first_beyond->token, 200'000);
}

}  // namespace
}  // namespace lockstep::data
