#include "lockstep/audit/pieces.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace lockstep::audit {
namespace {

// Numbers that outlive the pieces that refer to them.
class Writer {
 public:
  Piece piece(int rank, const Shape& shape, const Region& region,
              const std::vector<double>& whole) {
    std::vector<double>& values = *held_.emplace_back(std::make_unique<std::vector<double>>());
    for_each_run(shape, region, [&](std::int64_t first, std::int64_t count) {
      values.insert(values.end(), whole.begin() + first, whole.begin() + first + count);
    });
    return {.rank = rank,
            .region = region,
            .shape = shape,
            .bytes = std::as_bytes(std::span(values)),
            .dtype = DType::kF64};
  }

 private:
  std::vector<std::unique_ptr<std::vector<double>>> held_;
};

std::vector<double> counted_up(const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

std::string refusal(const Shape& shape, const std::vector<Piece>& pieces) {
  const auto made = assemble("gradient", "w", shape, pieces);
  return made.ok() ? "" : made.error().message;
}

TEST(Pieces, BoxesOfAnyCutMakeTheTensor) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const Shape shape = {1 + static_cast<int>(random() % 5), 1 + static_cast<int>(random() % 7),
                         1 + static_cast<int>(random() % 3)};
    const std::size_t dim = random() % 3;
    const auto whole = counted_up(shape);
    Writer writer;
    std::vector<Piece> pieces;
    for (std::int64_t begin = 0; begin < shape[dim];) {
      const std::int64_t length = 1 + static_cast<std::int64_t>(random() % (shape[dim] - begin));
      Region region = {Shape(3, 0), shape};
      region.offset[dim] = begin;
      region.extent[dim] = length;
      pieces.push_back(writer.piece(static_cast<int>(pieces.size()), shape, region, whole));
      begin += length;
    }
    std::ranges::shuffle(pieces, random);
    const auto made = assemble("gradient", "w", shape, pieces);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->tensor.values, whole);
    EXPECT_EQ(made->tensor.owners.size(), pieces.size());
  }
}

TEST(Pieces, RangesAndBoxesMeet) {
  const Shape shape = {4, 3};
  const auto whole = counted_up(shape);
  Writer writer;
  const Region range = {{}, {}, 0, 6}, box = {{2, 0}, {2, 3}};
  const auto made =
      assemble("gradient", "w", shape,
               {writer.piece(1, shape, range, whole), writer.piece(0, shape, box, whole)});
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->tensor.values, whole);
}

TEST(Pieces, SharesAreAddedUp) {
  const Shape shape = {6};
  const auto whole = counted_up(shape);
  Writer writer;
  std::vector<Piece> pieces;
  for (int rank = 0; rank < 3; ++rank) {
    pieces.push_back(writer.piece(rank, shape, {{0}, {6}}, whole));
    pieces.back().shares = 3;
  }
  const auto made = assemble("gradient", "w", shape, pieces);
  ASSERT_TRUE(made.ok()) << made.error().message;
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(made->tensor.values[i], 3 * whole[i]);
  pieces.pop_back();
  EXPECT_NE(refusal(shape, pieces).find("2 of 3 shares"), std::string::npos);
}

TEST(Pieces, CopiesAreHeldToEachOther) {
  const Shape shape = {4};
  const auto whole = counted_up(shape);
  Writer writer;
  const Piece first = writer.piece(0, shape, {{0}, {4}}, whole);
  Piece same = writer.piece(1, shape, {{0}, {4}}, whole);
  EXPECT_TRUE(assemble("gradient", "w", shape, {first, same})->differ.empty());
  auto changed = whole;
  changed[2] = 7;
  const Piece other = writer.piece(1, shape, {{0}, {4}}, changed);
  const auto made = assemble("gradient", "w", shape, {first, other});
  EXPECT_EQ(made->differ.size(), 1U);
  EXPECT_EQ(made->tensor.values, whole);
  Piece hashed = first;
  hashed.hash = "a";
  same.hash = "b";
  same.bytes = {};
  EXPECT_EQ(assemble("gradient", "w", shape, {hashed, same})->differ.size(), 1U);
}

TEST(Pieces, WhatDoesNotFitIsRefused) {
  const Shape shape = {4, 2};
  const auto whole = counted_up(shape);
  Writer writer;
  const Piece upper = writer.piece(0, shape, {{0, 0}, {2, 2}}, whole);
  const Piece lower = writer.piece(1, shape, {{2, 0}, {2, 2}}, whole);
  const Piece middle = writer.piece(1, shape, {{1, 0}, {3, 2}}, whole);
  EXPECT_EQ(refusal(shape, {upper, lower}), "");
  EXPECT_NE(refusal(shape, {upper}).find("hold 4 of 8"), std::string::npos);
  EXPECT_NE(refusal(shape, {upper, middle}).find("are in several pieces"), std::string::npos);
  const Piece twice = writer.piece(1, shape, {{0, 1}, {2, 1}}, whole);
  EXPECT_NE(refusal(shape, {upper, twice, writer.piece(1, shape, {{3, 0}, {1, 2}}, whole)})
                .find("are in no piece"),
            std::string::npos);
  for (const Region& outside : {Region{{3, 0}, {2, 2}}, Region{{-1, 0}, {2, 2}}, Region{{0}, {4}},
                                Region{{}, {}, 4, 9}, Region{{2, 0}, {std::int64_t{1} << 62, 2}}}) {
    Piece piece = lower;
    piece.region = outside;
    piece.bytes = {};
    EXPECT_NE(refusal(shape, {upper, lower, piece}).find("is not inside of [4, 2]"),
              std::string::npos);
  }
  Piece reshaped = lower;
  reshaped.shape = {2, 4};
  EXPECT_NE(refusal(shape, {upper, reshaped}).find("is [2, 4] to rank 1"), std::string::npos);
  Piece shorter = lower;
  shorter.bytes = shorter.bytes->first(16);
  EXPECT_NE(refusal(shape, {upper, shorter}).find("has 16 bytes, not 32"), std::string::npos);
  Piece whole_numbers = lower;
  whole_numbers.dtype = DType::kI64;
  EXPECT_NE(refusal(shape, {upper, whole_numbers}).find("is i64"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::audit
