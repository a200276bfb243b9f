#include "lockstep/optim/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/base/exact_sum.h"

namespace lockstep::optim {
namespace {

ExactSum::Words words_of(const std::vector<double>& values) {
  ExactSum::Words words = {};
  for (const double value : values)
    add_exactly(value, [&](int word, std::int64_t added) {
      words.at(static_cast<std::size_t>(word)) += added;
    });
  return words;
}

void expect_as_exact_sum(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  EXPECT_EQ(ExactSum::from_words(words_of(values)).to_words(), sum.to_words());
}

// Any bits are a double: normal, denormal, zero, infinite or none.
TEST(AddExactly, MeansTheSumThatExactSumMakes) {
  std::mt19937_64 dice(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values;
    for (int i = 0; i < 100; ++i) {
      values.push_back(std::bit_cast<double>(dice()));
      if (!std::isfinite(values.back()) && round % 10 != 0) values.pop_back();
    }
    expect_as_exact_sum(values);
  }
  const double largest = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  expect_as_exact_sum({largest, largest, -largest, least, -least, 0.0, -0.0});
  expect_as_exact_sum({std::numeric_limits<double>::infinity(), 1.0});
  expect_as_exact_sum({std::nan(""), -std::numeric_limits<double>::infinity()});
}

// No digit leaves 32 bits, so 2^30 addends fit a word.
TEST(AddExactly, AddsLessThanADigitToAWord) {
  std::mt19937_64 dice(2);
  for (int i = 0; i < 10'000; ++i)
    add_exactly(std::bit_cast<double>(dice()),
                [](int, std::int64_t added) { EXPECT_LT(std::abs(added), std::int64_t{1} << 32); });
}

}  // namespace
}  // namespace lockstep::optim
