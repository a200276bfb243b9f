#include "lockstep/data/sample_order.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "lockstep/base/hash.h"
#include "tests/support/golden.h"

namespace lockstep::data {
namespace {

// Lengths that tests/oracles/megatron_order.py makes too.
std::vector<std::int32_t> lengths_of(std::int64_t documents, std::int64_t least,
                                     std::int64_t span) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < documents; ++i) {
    const auto hash = static_cast<std::uint32_t>(i * 2654435761 + 12345);
    lengths.push_back(static_cast<std::int32_t>(least + (hash >> 7) % span));
  }
  return lengths;
}

PieceLengths view(const std::vector<std::int32_t>& lengths) {
  return PieceLengths(std::as_bytes(std::span(lengths)));
}

template <class Number>
std::string digest(const std::vector<Number>& numbers) {
  return to_hex(sha256(std::as_bytes(std::span(numbers)))).substr(0, 32);
}

// Lines of the table whose first word is `kind`, without it.
std::vector<std::istringstream> rows(const std::string& kind) {
  std::ifstream file(support::source_dir() + "/tests/golden/data/orders.txt");
  std::vector<std::istringstream> found;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kind + " ")) found.emplace_back(line.substr(kind.size()));
  return found;
}

TEST(NumpyRandom, ShufflesLikeNumpy) {
  NumpyRandom random(1234);
  std::vector<int> items(10);
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(std::span(items));
  EXPECT_EQ(items, (std::vector<int>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(std::span(items));
  EXPECT_EQ(items, (std::vector<int>{7, 3, 5, 1, 4, 8, 0, 2, 6, 9}));
}

// The table was made by numpy from Megatron's description.
TEST(SampleOrder, IsThatOfMegatron) {
  auto table = rows("order");
  ASSERT_GE(table.size(), 20U);
  for (std::istringstream& row : table) {
    std::int64_t documents, least, span, split, seq, samples, begin, end, epochs, apart, count;
    Shares shares;
    std::uint32_t seed;
    std::string document_digest, sample_digest, shuffle_digest;
    row >> documents >> least >> span >> shares[0] >> shares[1] >> shares[2] >> split >> seq >>
        samples >> seed >> begin >> end >> epochs >> apart >> count >> document_digest >>
        sample_digest >> shuffle_digest;
    ASSERT_TRUE(row) << row.str();
    const Range range = split_bounds(shares, documents)[static_cast<std::size_t>(split)];
    EXPECT_EQ(range, (Range{begin, end})) << row.str();
    const auto lengths = lengths_of(documents, least, span);
    OrderDemand demand{seq, samples, seed};
    if (samples == 0) demand.samples.reset();
    const auto order = SampleOrder::build(view(lengths), range, demand, "it");
    ASSERT_TRUE(order.ok()) << order.error().message;
    EXPECT_EQ(order->epochs(), epochs) << row.str();
    EXPECT_EQ(order->last_epoch_apart(), apart != 0) << row.str();
    ASSERT_EQ(order->samples(), count) << row.str();
    std::vector<std::int32_t> document_index;
    std::vector<std::int64_t> sample_index;
    std::vector<std::uint32_t> shuffle_index;
    for (std::int64_t i = 0; i < order->positions(); ++i)
      document_index.push_back(static_cast<std::int32_t>(order->piece(i)));
    for (std::int64_t i = 0; i <= count; ++i) {
      const SampleOrder::Place place = order->place(i);
      sample_index.insert(sample_index.end(), {place.position, place.offset});
      if (i < count) shuffle_index.push_back(static_cast<std::uint32_t>(order->sample(i)));
    }
    EXPECT_EQ(digest(document_index), document_digest) << row.str();
    EXPECT_EQ(digest(sample_index), sample_digest) << row.str();
    EXPECT_EQ(digest(shuffle_index), shuffle_digest) << row.str();
  }
}

TEST(SampleOrder, RefusesWhatCanNotBeFilled) {
  const auto message = [](std::vector<std::int32_t> lengths, const OrderDemand& demand) {
    const Range all{0, static_cast<std::int64_t>(lengths.size())};
    return SampleOrder::build(view(lengths), all, demand, "the text").error().message;
  };
  EXPECT_EQ(message({3, 5}, {.seq = 8}),
            "the text has 8 tokens in 2 documents; one sample takes 9");
  EXPECT_EQ(message({1}, {.seq = 8, .samples = 4}),
            "the text has 1 tokens in 1 documents; one sample takes 9");
  EXPECT_EQ(message({9, 9}, {.seq = 1, .samples = 4294967295}),
            "4,294,967,295 samples of the text; at most 4,294,967,294 can be numbered");
  EXPECT_EQ(message(std::vector<std::int32_t>(1000, 1), {.seq = 1024, .samples = 4000000000}),
            "4,096,000,001 epochs over the 1,000 documents of the text are more than can be "
            "numbered");
}

// Also made by numpy, whose sums are pairwise: up to 300 files.
TEST(Blend, IsThatOfMegatron) {
  auto table = rows("blend");
  ASSERT_GE(table.size(), 10U);
  for (std::istringstream& row : table) {
    std::int64_t samples;
    std::size_t count;
    std::string word, weight_digest, request_digest, file_digest, draw_digest;
    row >> samples >> count;
    std::vector<double> weights;
    for (std::size_t i = 0; i < count && row >> word; ++i)
      weights.push_back(std::strtod(word.c_str(), nullptr));
    row >> weight_digest >> request_digest >> file_digest >> draw_digest;
    ASSERT_TRUE(row) << row.str();
    const std::vector<double> once = normalised(weights);
    EXPECT_EQ(digest(normalised(once)), weight_digest) << count;
    std::vector<std::int64_t> requests;
    for (const double weight : once) requests.push_back(blend_request(samples, weight));
    const Blend blend(normalised(once), requests, samples);
    ASSERT_EQ(blend.samples(), samples) << "a request ran dry";
    std::vector<std::int16_t> files;
    std::vector<std::int64_t> draws;
    for (std::int64_t i = 0; i < samples; ++i) {
      const Blend::Choice choice = blend.at(i);
      files.push_back(static_cast<std::int16_t>(choice.file));
      draws.push_back(choice.draw);
    }
    EXPECT_EQ(digest(requests), request_digest) << samples;
    EXPECT_EQ(digest(files), file_digest) << samples;
    EXPECT_EQ(digest(draws), draw_digest) << samples;
  }
}

TEST(Blend, EndsBeforeAFileRunsDry) {
  const Blend blend(std::vector{0.5, 0.5}, std::vector<std::int64_t>{3, 10}, 100);
  EXPECT_EQ(blend.samples(), 6);
  EXPECT_EQ(blend.taken()[0], 3);
  EXPECT_EQ(blend.taken()[1], 3);
}

}  // namespace
}  // namespace lockstep::data
