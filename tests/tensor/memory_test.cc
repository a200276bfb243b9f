#include "lockstep/tensor/memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep::tensor {
namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override { install_counting_allocator(); }
  MemoryAccount account_;
};

TEST_F(Memory, LiveAndPeakAreExactOnAScript) {
  const ChargeTo charge(account_);
  {
    at::Tensor first = at::empty({1000}, at::kFloat), second;
    EXPECT_EQ(account_.live(), 4000);
    {
      second = at::empty({3}, at::kByte);
      const at::Tensor transient = at::empty({50}, at::kDouble);
      EXPECT_EQ(account_.live(), 4403);
    }
    EXPECT_EQ(account_.live(), 4003);
    EXPECT_EQ(account_.peak(), 4403);
    first.reset();
    EXPECT_EQ(account_.live(), 3);
    account_.reset_peak();
    EXPECT_EQ(account_.peak(), 3);
    const at::Tensor nothing = at::empty({0}, at::kFloat);
    EXPECT_EQ(account_.live(), 3);
  }
  EXPECT_EQ(account_.live(), 0);
}

TEST_F(Memory, ABlockIsCreditedWhereItWasChargedWhoeverReturnsIt) {
  at::Tensor tensor;
  {
    const ChargeTo charge(account_);
    tensor = at::empty({1 << 20}, at::kFloat);
  }
  EXPECT_EQ(account_.live(), 4 << 20);
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(account_.live(), 0);
}

TEST_F(Memory, ThreadsAreRanksWithAccountsOfTheirOwn) {
  MemoryAccount accounts[4];
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.emplace_back([&, r] {
      const ChargeTo charge(accounts[r]);
      for (int i = 0; i < 100; ++i) {
        const at::Tensor a = at::ones({(r + 1) * 1000}, at::kFloat);
        const at::Tensor b = a.add(a);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(accounts[r].live(), 0);
    EXPECT_EQ(accounts[r].peak(), 2 * 4 * (r + 1) * 1000);
  }
}

TEST_F(Memory, LargeBlocksComeBackFromTheCache) {
  const void* first = at::empty({1 << 20}, at::kFloat).data_ptr();
  const void* second = at::empty({1 << 20}, at::kFloat).data_ptr();
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace lockstep::tensor
