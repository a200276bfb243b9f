#include "lockstep/base/block_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace lockstep {
namespace {

TEST(BlockCache, GivesTheSameBlockBackForTheSameSize) {
  BlockCache cache(1 << 20);
  void* first = cache.take(100'000);
  cache.give(first, 100'000);
  EXPECT_GE(cache.kept(), 100'000u);
  EXPECT_EQ(cache.take(100'000), first);
  EXPECT_EQ(cache.kept(), 0u);
  cache.give(first, 100'000);
}

TEST(BlockCache, WhatIsLentComesBackByItself) {
  BlockCache cache(1 << 20);
  cache.lend(100'000)[99'999] = std::byte{1};
  EXPECT_GE(cache.kept(), 100'000u);
  cache.lend(0);
}

TEST(BlockCache, EverySizeIsServedInFullAndAligned) {
  BlockCache cache(1 << 26);
  for (std::size_t size = 1; size < (1 << 24); size = size * 9 / 8 + 1) {
    for (const std::size_t bytes : {size - 1, size, size + 1}) {
      if (bytes == 0) continue;
      void* block = cache.take(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
      std::memset(block, 1, bytes);  // a sanitizer run sees a block that is too short
      cache.give(block, bytes);
    }
  }
}

TEST(BlockCache, KeepsNoMoreThanItsBound) {
  BlockCache cache(1 << 20);
  void* blocks[4];
  for (void*& block : blocks) block = cache.take(400'000);
  for (void* block : blocks) cache.give(block, 400'000);
  EXPECT_LE(cache.kept(), std::size_t{1} << 20);
  EXPECT_GE(cache.kept(), 800'000u);
  cache.trim();
  EXPECT_EQ(cache.kept(), 0u);
}

TEST(BlockCache, SmallBlocksAreLeftToMalloc) {
  BlockCache cache(1 << 20);
  cache.give(cache.take(100), 100);
  EXPECT_EQ(cache.kept(), 0u);
}

TEST(BlockCache, ThreadsShareIt) {
  BlockCache cache(1 << 24);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t bytes = 70'000 + 1000 * (i % 7);
        auto* block = static_cast<unsigned char*>(cache.take(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
        EXPECT_EQ(block[0], t);
        cache.give(block, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep
