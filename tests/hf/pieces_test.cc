#include "lockstep/hf/import.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::hf {
namespace {

// Element (output, input) of a stored tensor is a number of its own; of every width that weights
// have.
template <class T>
void expect_both_ways(std::int64_t inputs, const std::vector<std::int64_t>& rows) {
  const std::int64_t outputs = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const auto number = [&](std::int64_t o, std::int64_t i) {
    return static_cast<T>(o * inputs + i);
  };
  std::vector<T> stored(static_cast<std::size_t>(inputs * outputs));
  for (std::int64_t i = 0; i < inputs; ++i)
    for (std::int64_t o = 0; o < outputs; ++o)
      stored[static_cast<std::size_t>(i * outputs + o)] = number(o, i);

  std::vector<Piece> pieces;
  std::vector<std::vector<T>> params;
  std::int64_t begin = 0;
  for (const std::int64_t own : rows) {
    pieces.push_back({begin, own, inputs, outputs, true});
    params.emplace_back(static_cast<std::size_t>(own * inputs));
    for (std::int64_t first = 0, step = 1; first < own; first += step, ++step) {
      step = std::min(step, own - first);
      const auto part = std::span(params.back())
                            .subspan(static_cast<std::size_t>(first * inputs),
                                     static_cast<std::size_t>(step * inputs));
      take_rows(pieces.back(), std::as_bytes(std::span(stored)), sizeof(T), first,
                std::as_writable_bytes(part));
    }
    for (std::int64_t r = 0; r < own; ++r)
      for (std::int64_t i = 0; i < inputs; ++i)
        ASSERT_EQ(params.back()[static_cast<std::size_t>(r * inputs + i)], number(begin + r, i));
    begin += own;
  }

  std::vector<ByteSpan> views;
  for (const auto& param : params) views.push_back(std::as_bytes(std::span(param)));
  std::vector<T> again(stored.size());
  for (std::int64_t first = 0; first < inputs; first += 7) {
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(7, inputs - first) * outputs);
    put_transposed(pieces, views, sizeof(T), first,
                   std::as_writable_bytes(
                       std::span(again).subspan(static_cast<std::size_t>(first * outputs), count)));
  }
  EXPECT_EQ(again, stored);
}

TEST(Pieces, TransposeAndCutAndJoinAgain) {
  for (const std::int64_t inputs : {1, 5, 32, 33, 70}) {
    expect_both_ways<std::uint16_t>(inputs, {9, 9, 9});
    expect_both_ways<float>(inputs, {64});
    expect_both_ways<double>(inputs, {1, 40, 2});
  }
}

TEST(Pieces, PlainRowsAreCopied) {
  const std::vector<float> stored = {0, 1, 2, 3, 4, 5, 6, 7};
  const Piece piece{.begin = 1, .rows = 2, .columns = 2, .outputs = 4};
  std::vector<float> out(2);
  take_rows(piece, std::as_bytes(std::span(stored)), 4, 1, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, (std::vector<float>{4, 5}));
}

}  // namespace
}  // namespace lockstep::hf
