#include "lockstep/comm/texts.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local/local.h"

namespace lockstep::comm {
namespace {

TEST(Texts, OfEveryMemberReachTheFirstAndOfTheFirstEveryone) {
  for (const int size : {1, 3})
    run_local(size, [&](World& world) {
      std::vector<Rank> everyone;
      for (int rank = 0; rank < size; ++rank) everyone.push_back({rank});
      const Deadline deadline = Deadline::after(Seconds{60});
      const auto group = world.connect("all", "all", everyone, deadline);
      const int own = world.rank().value;
      const auto texts =
          gather_texts(*group, std::string(static_cast<std::size_t>(own), 'x'), deadline);
      ASSERT_EQ(texts.size(), own == 0 ? static_cast<std::size_t>(size) : 0u);
      for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(i, 'x'));
      for (const std::string text : {"", "several\nlines"})
        EXPECT_EQ(share_text(*group, own == 0 ? text : "something else", deadline), text);
    });
}

// A member that says a length as a broken or foreign one might.
TEST(Texts, ALengthThatNoTextHasIsRefusedWithTheRank) {
  for (const std::int64_t length : {std::int64_t{-1}, kMaxText + 1, std::int64_t{1} << 62})
    for (const int liar : {0, 1}) {
      int refused = 0;
      run_local(2, [&](World& world) {
        const Deadline deadline = Deadline::after(Seconds{60});
        const auto group = world.connect("all", "all", {Rank{0}, Rank{1}}, deadline);
        std::int64_t told = length, all[2] = {};
        try {
          if (world.rank().value != liar)
            liar == 0 ? share_text(*group, "", deadline)
                      : gather_texts(*group, "", deadline).front();
          else if (liar == 0)
            group->broadcast({&told, 1, DType::kI64, {}}, 0, deadline).wait();
          else
            group->all_gather({&told, 1, DType::kI64, {}}, {all, 2, DType::kI64, {}}, deadline)
                .wait();
        } catch (const CommError& error) {
          ++refused;
          EXPECT_EQ(error.culprit(), Rank{liar});
          EXPECT_EQ(error.error().message, "local group all, member " + std::to_string(1 - liar) +
                                               " of 2: rank " + std::to_string(liar) +
                                               " says that its text has " + std::to_string(length) +
                                               " bytes; a text has 0 to 268435456");
        }
      });
      EXPECT_EQ(refused, 1);
    }
}

TEST(Texts, AVerdictIsReadAsSentOrRefused) {
  EXPECT_EQ(*decoded(encoded(std::string("a \"path\"\n"))), "a \"path\"\n");
  const auto failed = decoded(encoded(Error{Code::kDiskFailed, "full", "make room"}));
  EXPECT_EQ(failed.error().code, Code::kDiskFailed);
  EXPECT_EQ(failed.error().message + ": " + failed.error().help, "full: make room");
  for (const std::string text : {"", "[]", "[1]", "[1,\"a\"]", "[\"a\",\"b\",\"c\"]", "[1,2,3]",
                                 "{}", "7", "[1,\"a\",\"b\",4]"})
    EXPECT_THROW(decoded(text), WorldError) << text;
  const auto unknown = decoded("[123456789012,\"a\",\"b\"]");  // of another version, perhaps
  EXPECT_NE(to_text(unknown.error().code), "");
}

}  // namespace
}  // namespace lockstep::comm
