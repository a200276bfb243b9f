#include "lockstep/comm/call_beside.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace lockstep::comm {
namespace {

TEST(CallBeside, GivesWhatTheCallReturnsOrThrows) {
  const auto nothing = [] {};
  EXPECT_EQ(call_beside([] { return std::make_unique<std::string>("made"); }, nothing)->size(), 4U);
  EXPECT_THROW(call_beside([]() -> int { throw std::runtime_error("no"); }, nothing),
               std::runtime_error);
}

TEST(CallBeside, LeavesACallThatNothingEnds) {
  auto end = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<bool>>();
  std::future<bool> is_ended = ended->get_future();
  const auto call = [ends = end->get_future().share(), ended] {
    ends.wait();
    ended->set_value(true);
    return 1;
  };
  int waited = 0;
  EXPECT_THROW(call_beside(call,
                           [&] {
                             if (++waited == 2) throw std::runtime_error("enough");
                           }),
               std::runtime_error);
  EXPECT_EQ(waited, 2);
  end->set_value();
  EXPECT_TRUE(is_ended.get());
}

}  // namespace
}  // namespace lockstep::comm
