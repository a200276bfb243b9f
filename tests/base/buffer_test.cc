#include "lockstep/base/buffer.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Buffer, SlicesCountElementsNotBytes) {
  std::array<float, 10> memory{};
  const Buffer whole{memory.data(), 10, DType::kF32, {DeviceKind::kCuda, 3}};
  EXPECT_EQ(whole.bytes(), 40);
  const Buffer part = whole.slice(2, 5);
  EXPECT_EQ(part.data, &memory[2]);
  EXPECT_EQ(part.count, 5);
  EXPECT_EQ(part.dtype, DType::kF32);
  EXPECT_EQ(part.device, whole.device);
  EXPECT_EQ(part.slice(1, 2).data, &memory[3]);
  EXPECT_EQ(whole.slice(10, 0).count, 0);
}

TEST(Buffer, BecomesAConstBufferOfTheSameMemory) {
  std::array<std::int64_t, 4> memory{};
  const Buffer writable{memory.data(), 4, DType::kI64, {}};
  const ConstBuffer readable = writable;
  EXPECT_EQ(readable.data, memory.data());
  EXPECT_EQ(readable.bytes(), 32);
}

TEST(Buffer, SlicesStayInside) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  std::array<std::uint8_t, 4> memory{};
  const Buffer whole{memory.data(), 4, DType::kU8, {}};
  for (const auto& [first, num] : {std::pair<std::int64_t, std::int64_t>{-1, 1},
                                   {0, 5},
                                   {4, 1},
                                   {1, -1},
                                   {5, 0},
                                   {1, kHuge},
                                   {kHuge, kHuge}})
    EXPECT_THROW(whole.slice(first, num), BrokenInvariant) << first << " " << num;
}

}  // namespace
}  // namespace lockstep
