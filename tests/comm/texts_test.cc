#include "lockstep/comm/texts.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local.h"

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

}  // namespace
}  // namespace lockstep::comm
