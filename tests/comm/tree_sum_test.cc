#include "lockstep/comm/tree_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::comm {
namespace {

// Written apart from the library: pairs neighbours level by level, carrying an odd one up
// unchanged. For the tree that splits at the largest power of two below the length, that is the
// same grouping.
template <class T>
T by_levels(std::vector<T> values) {
  while (values.size() > 1) {
    std::vector<T> next;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(static_cast<T>(values[i] + values[i + 1]));
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = std::move(next);
  }
  return values[0];
}

template <class T>
void check_against_levels(DType dtype) {
  const RandomStream random(3, "tree");
  std::uint64_t draw = 0;
  for (const std::size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33, 64})
    for (const std::int64_t count : {1, 7, 1023, 1024, 1025, 3000}) {
      std::vector<std::vector<T>> data(ranks, std::vector<T>(static_cast<std::size_t>(count)));
      std::vector<const void*> leaves;
      for (auto& one : data) {
        for (T& x : one)
          x = static_cast<T>(std::ldexp(random.normal(draw), static_cast<int>(draw % 20))), ++draw;
        leaves.push_back(one.data());
      }
      std::vector<T> sum(static_cast<std::size_t>(count));
      tree_sum(leaves, sum.data(), count, dtype);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        std::vector<T> column;
        for (const auto& one : data) column.push_back(one[i]);
        const T expected = by_levels(column);
        ASSERT_EQ(std::memcmp(&sum[i], &expected, sizeof(T)), 0)
            << ranks << " ranks, element " << i;
      }
    }
}

TEST(TreeSumLong, EqualsTheTreeEvaluatedSerially) {
  check_against_levels<float>(DType::kF32);
  check_against_levels<double>(DType::kF64);
  check_against_levels<std::int64_t>(DType::kI64);
  check_against_levels<std::int32_t>(DType::kI32);
}

TEST(TreeSum,
     OrderShowsInTheBits) {  // the property is not vacuous: another grouping gives another float
  const float values[] = {1e8f, 1.0f, -1e8f, 1.0f};
  const void* leaves[] = {&values[0], &values[1], &values[2], &values[3]};
  float sum = 0;
  tree_sum(leaves, &sum, 1, DType::kF32);
  EXPECT_EQ(sum, (1e8f + 1.0f) + (-1e8f + 1.0f));
  EXPECT_NE(sum, ((1e8f + 1.0f) + -1e8f) + 1.0f);
}

TEST(TreeSum, Bf16IsAddedInF32AndRoundedOnce) {
  const auto bf16 = [](float x) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  };
  // 1 + 2^-8 is a tie and would round to 1 each time; four of them added in f32 first give 1 +
  // 2^-6.
  const std::uint16_t values[] = {bf16(1.0f), bf16(0x1p-8f), bf16(0x1p-8f), bf16(0x1p-7f)};
  const void* leaves[] = {&values[0], &values[1], &values[2], &values[3]};
  std::uint16_t sum = 0;
  tree_sum(leaves, &sum, 1, DType::kBF16);
  EXPECT_EQ(sum, bf16(1.0f + 0x1p-6f));
  const std::uint16_t not_a_number = 0x7f81;
  const void* with_nan[] = {&values[0], &not_a_number};
  tree_sum(with_nan, &sum, 1, DType::kBF16);
  EXPECT_TRUE((sum & 0x7f80) == 0x7f80 && (sum & 0x7f) != 0);
}

TEST(TreeSum, MayWriteOverAnInputAndWrapsIntegers) {
  std::int64_t a = INT64_MAX, b = 1;
  const void* leaves[] = {&a, &b};
  tree_sum(leaves, &a, 1, DType::kI64);
  EXPECT_EQ(a, INT64_MIN);
}

TEST(TreeSum, RefusesTypesItCanNotAdd) {
  std::uint8_t byte = 1;
  const void* leaves[] = {&byte};
  EXPECT_FALSE(can_sum(DType::kU8));
  EXPECT_THROW(tree_sum(leaves, &byte, 1, DType::kU8), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::comm
