// The kernels' source on the host (host/cuda_runtime.h) against what the CPU has: the same bits,
// however many blocks there are.
#include "lockstep/cuda/kernels.h"

#include <ATen/ops/empty.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/exact_sum.h"
#include "lockstep/nn/cross_entropy.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/squares.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kAnyBlocks = std::numeric_limits<unsigned>::max();
constexpr std::int64_t kCounts[] = {0, 1, 7, 8, 9, 255, 256, 257, 511, 1000, 2000};

struct Kernels : testing::Test {
  ~Kernels() override { host::device = {}; }
};

template <class T>
constexpr at::ScalarType kType = std::is_same_v<T, double> ? at::kDouble : at::kFloat;

template <class T>
at::Tensor tensor_of(const std::vector<T>& values) {
  const at::Tensor made =
      at::empty({std::ssize(values)}, std::is_same_v<T, std::int64_t> ? at::kLong : kType<T>);
  std::memcpy(made.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return made;
}

// Memory of a device, with NaN on both sides: whoever reads there has it in a sum.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) : all_(values.size() + 2 * kEdge, edge()) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return all_.data() + kEdge; }
  std::vector<T> values() const { return {all_.begin() + kEdge, all_.end() - kEdge}; }
  bool is_edge_whole() const {
    const Guarded fresh(values());
    return std::memcmp(all_.data(), fresh.all_.data(), all_.size() * sizeof(T)) == 0;
  }

 private:
  static constexpr std::size_t kEdge = 600;  // more than two tiles
  static T edge() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    return 0x55;
  }
  std::vector<T> all_;
};

// Of many magnitudes and both signs, so that sums of another order have other bits.
template <class T>
std::vector<T> drawn(std::int64_t count, unsigned seed) {
  std::mt19937 dice(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values)
    value = static_cast<T>(std::ldexp(normal(dice), static_cast<int>(dice() % 40) - 20));
  return values;
}

template <class T>
std::vector<T> odd_values() {
  using Limits = std::numeric_limits<T>;
  return {Limits::denorm_min(),
          -Limits::denorm_min(),
          Limits::min(),
          Limits::max(),
          -Limits::max(),
          T{0},
          -T{0},
          Limits::epsilon()};
}
template <class T>
std::vector<T> no_numbers() {
  using Limits = std::numeric_limits<T>;
  return {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()};
}

// The same bits, whatever a NaN has.
template <class T>
void expect_same(const std::vector<T>& made, const std::vector<T>& right, const char* what) {
  ASSERT_EQ(made.size(), right.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (std::isnan(made[i]) && std::isnan(right[i])) continue;
    ASSERT_EQ(std::memcmp(&made[i], &right[i], sizeof(T)), 0)
        << what << " " << i << ": " << made[i] << ", not " << right[i];
  }
}

template <class T>
std::vector<T> values_of(const at::Tensor& tensor) {
  const auto* const data = tensor.const_data_ptr<T>();
  return {data, data + tensor.numel()};
}

template <class T>
struct AdamWCase {
  std::vector<T> grad, param, first, second;
  explicit AdamWCase(std::int64_t count, unsigned seed)
      : grad(drawn<T>(count, seed)),
        param(drawn<T>(count, seed + 1)),
        first(drawn<T>(count, seed + 2)),
        second(drawn<T>(count, seed + 3)) {
    for (T& value : second) value = std::abs(value);
    std::vector<T> odd = odd_values<T>();
    for (const T value : no_numbers<T>()) odd.push_back(value);
    for (std::size_t i = 0; i < odd.size() && 20 * i + 3 < grad.size(); ++i) {
      grad[20 * i] = odd[i];
      param[20 * i + 1] = odd[i];
      first[20 * i + 2] = odd[i];
      second[20 * i + 3] = std::abs(odd[i]);
    }
  }
};

model::FlatLayout layout_of(std::int64_t count) {
  model::FlatLayout layout;
  layout.params = {{0, 0, count}};
  layout.size = layout.decay_end = count;
  return layout;
}

template <class T>
void expect_updated(std::int64_t count, std::int64_t step, bool rounds) {
  const AdamWCase<T> given(count, static_cast<unsigned>(count + step));
  const optim::AdamW settings;
  const double grad_scale = 0.7;

  const at::Tensor updated = tensor_of(given.param);
  optim::State state = {tensor_of(given.first), tensor_of(given.second)};
  if (rounds) state.master = updated;
  const at::Tensor param = rounds ? at::empty({count}, at::kBFloat16) : updated;
  optim::update(settings, step, layout_of(count), {0, count}, param, tensor_of(given.grad), state,
                grad_scale);

  Guarded<T> made(given.param), first(given.first), second(given.second), grad(given.grad);
  Guarded<std::uint16_t> rounded(std::vector<std::uint16_t>(static_cast<std::size_t>(count)));
  launch_update(optim::factors_of<T>(settings, step, settings.weight_decay, grad_scale), count,
                grad.data(), made.data(), first.data(), second.data(),
                rounds ? rounded.data() : nullptr, nullptr);
  expect_same(made.values(), values_of<T>(updated), "parameter");
  expect_same(first.values(), values_of<T>(state.first), "first moment");
  expect_same(second.values(), values_of<T>(state.second), "second moment");
  if (rounds) {
    const auto* const right = static_cast<const std::uint16_t*>(param.const_data_ptr());
    const std::vector<std::uint16_t> bits = rounded.values();
    for (std::size_t i = 0; i < bits.size(); ++i)
      if (!std::isnan(made.data()[i])) {
        ASSERT_EQ(bits[i], right[i]) << made.data()[i];
      }
  }
  EXPECT_TRUE(made.is_edge_whole() && first.is_edge_whole() && second.is_edge_whole() &&
              rounded.is_edge_whole());
}

TEST_F(Kernels, UpdateAsTheCpu) {
  for (const unsigned blocks : {1u, 3u, kAnyBlocks}) {
    host::device.max_blocks = blocks;
    for (const std::int64_t count : kCounts)
      for (const std::int64_t step : {1, 1000}) {
        SCOPED_TRACE(testing::Message() << blocks << " blocks, " << count << " elements");
        expect_updated<double>(count, step, false);
        expect_updated<float>(count, step, false);
        expect_updated<float>(count, step, true);
      }
  }
}

using Words = std::vector<std::int64_t>;

ExactSum sum_of(const Words& words) {
  ExactSum::Words of;
  std::copy(words.begin(), words.end(), of.begin());
  return ExactSum::from_words(of);
}

// Something is in the words already.
ExactSum begun() {
  ExactSum sum;
  sum.add(-1.25e-3);
  return sum;
}
Guarded<std::int64_t> words_begun() {
  const ExactSum::Words words = begun().to_words();
  return Guarded<std::int64_t>(Words(words.begin(), words.end()));
}

using Range = model::FlatRange;

// Holes are relative to the first gradient, which is element kBegin of the unit.
constexpr std::int64_t kBegin = 512;

template <class T>
void expect_squares(const std::vector<T>& grad, Range one = {}, Range two = {}, Range three = {}) {
  const auto count = std::ssize(grad);
  model::FlatLayout layout;
  layout.tied_copy = true;
  layout.tied = {one.begin + kBegin, one.end + kBegin};
  layout.replicated = {two.begin + kBegin, two.end + kBegin};
  layout.copied = {{three.begin + kBegin, three.end + kBegin}};
  layout.copies = 2;
  ExactSum right = begun();
  optim::add_squares(layout, {kBegin, kBegin + count}, tensor_of(grad), right, {2, 1});

  Guarded<T> given(grad);
  Guarded<std::int64_t> words = words_begun();
  launch_add_squares(given.data(), count,
                     {{one.begin, two.begin, three.begin}, {one.end, two.end, three.end}},
                     words.data(), nullptr);
  ASSERT_EQ(sum_of(words.values()).to_words(), right.to_words())
      << count << " elements without [" << one.begin << ", " << one.end << "), [" << two.begin
      << ", " << two.end << ") and [" << three.begin << ", " << three.end
      << "): " << sum_of(words.values()).result() << ", not " << right.result();
  EXPECT_TRUE(words.is_edge_whole());
}

TEST_F(Kernels, AddSquaresAsTheCpu) {
  for (const std::int64_t count : kCounts) {
    expect_squares(drawn<float>(count, 1));
    expect_squares(drawn<double>(count, 2));
  }
}

TEST_F(Kernels, StrideOverTiles) {
  for (const unsigned blocks : {1u, 2u, 3u, kAnyBlocks})
    for (const std::int64_t count : {8192, 8193, 30'000}) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks");
      host::device.max_blocks = blocks;
      expect_squares(drawn<float>(count, 3), {-9, 300}, {8000, 9000});
      expect_squares(drawn<double>(count, 4), {8191, 8192}, {20'000, 40'000});
    }
}

TEST_F(Kernels, LeaveOutHoles) {
  constexpr std::int64_t kCount = 1000;  // ends within a tile
  const std::vector<float> floats = drawn<float>(kCount, 5);
  const std::vector<double> doubles = drawn<double>(kCount, 6);
  // Ascending by their ends: before, at the begin, within a tile, of a tile, across, empty, all,
  // at the end, behind.
  const Range holes[] = {{-300, -20}, {-300, 0},    {-5, 1},     {0, 1},      {0, 7},
                         {3, 3},      {8, 16},      {100, 203},  {250, 255},  {255, 256},
                         {0, 256},    {255, 257},   {256, 257},  {250, 300},  {256, 512},
                         {200, 800},  {768, 999},   {0, 1000},   {999, 1000}, {-9, 1100},
                         {900, 1100}, {1000, 1024}, {1100, 1200}};
  for (const Range one : holes) {
    expect_squares(floats, one);
    expect_squares(doubles, {}, one);
    for (const Range two : holes)
      if (one.end <= two.begin) {
        expect_squares(floats, one, two);
        expect_squares(doubles, one, two);
        expect_squares(doubles, one, two, {std::min(two.end + 9, kCount), kCount});
      }
  }
}

TEST_F(Kernels, SquareWhatIsNoNumber) {
  const auto expect_with = [](auto odd) {
    using T = decltype(odd);
    std::vector<T> values = drawn<T>(600, 7);
    for (const std::size_t at : {0, 255, 256, 599}) {
      const T before = std::exchange(values[at], odd);
      expect_squares(values);
      expect_squares(values, {0, 1}, {250, 256});
      values[at] = before;
    }
  };
  for (const float odd : odd_values<float>()) expect_with(odd);
  for (const double odd : odd_values<double>()) expect_with(odd);
  for (const float odd : no_numbers<float>()) expect_with(odd);
  for (const double odd : no_numbers<double>()) expect_with(odd);
  // Denormals alone, which a sum with others would hide.
  expect_squares(std::vector<float>(300, std::numeric_limits<float>::denorm_min()));
  expect_squares(std::vector<double>(300, 0x1p-530));
}

template <class T>
void expect_losses(const std::vector<T>& log_probs, const std::vector<std::int64_t>& labels) {
  ExactSum right = begun();
  nn::add_losses(tensor_of(log_probs), tensor_of(labels), right);

  Guarded<T> given(log_probs);
  Guarded<std::int64_t> words = words_begun();
  Guarded<std::int64_t> given_labels(labels);
  launch_add_losses(given.data(), given_labels.data(), std::ssize(labels), words.data(), nullptr);
  ASSERT_EQ(sum_of(words.values()).to_words(), right.to_words())
      << labels.size() << " tokens: " << sum_of(words.values()).result() << ", not "
      << right.result();
  EXPECT_TRUE(words.is_edge_whole());
}

// The last is -100 where 32 bits are left of it.
std::vector<std::int64_t> labels_drawn(std::int64_t count) {
  constexpr std::int64_t kLabels[] = {0, 1, 50'000, -100, -100, -99, -101, 100, (1LL << 32) - 100};
  std::mt19937 dice(8);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  for (std::int64_t& label : labels) label = kLabels[dice() % std::size(kLabels)];
  return labels;
}

TEST_F(Kernels, AddLossesAsTheCpu) {
  for (const unsigned blocks : {1u, 2u, 3u, kAnyBlocks})
    for (const std::int64_t count : kCounts) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks");
      host::device.max_blocks = blocks;
      const std::vector<std::int64_t> labels = labels_drawn(count);
      expect_losses(drawn<float>(count, 9), labels);
      expect_losses(drawn<double>(count, 10), labels);
    }
}

TEST_F(Kernels, AddLossesThatAreNoNumbers) {
  const auto expect_with = [](const auto& values) {
    expect_losses(values, std::vector<std::int64_t>(values.size(), 5));
    expect_losses(values, std::vector<std::int64_t>(values.size(), nn::kIgnored));
  };
  expect_with(odd_values<float>());
  expect_with(odd_values<double>());
  for (const float value : no_numbers<float>()) expect_with(std::vector<float>{-1, value});
  for (const double value : no_numbers<double>()) expect_with(std::vector<double>{-1, value});
  expect_with(no_numbers<double>());
}

// Grids of counts that no test has the time for; nothing runs.
TEST_F(Kernels, AskForNoMoreBlocksThanMostOfThem) {
  host::device.max_blocks = 0;
  const auto blocks_of_losses = [](std::int64_t count) {
    launch_add_losses(static_cast<const float*>(nullptr), nullptr, count, nullptr, nullptr);
    return host::device.asked_blocks;
  };
  const auto blocks_of_squares = [](std::int64_t count) {
    launch_add_squares(static_cast<const float*>(nullptr), count, {}, nullptr, nullptr);
    return host::device.asked_blocks;
  };
  EXPECT_EQ(blocks_of_losses(1), 1);
  EXPECT_EQ(blocks_of_losses(256), 1);
  EXPECT_EQ(blocks_of_losses(257), 2);
  EXPECT_EQ(blocks_of_losses(4095 * 256 + 1), 4096);
  EXPECT_EQ(blocks_of_losses(4096 * 256 + 1), 4096);
  EXPECT_EQ(blocks_of_losses(std::int64_t{1} << 42), 4096);
  EXPECT_EQ(blocks_of_squares(1), 1);
  EXPECT_EQ(blocks_of_squares(32 * 256), 1);
  EXPECT_EQ(blocks_of_squares(32 * 256 + 1), 2);
  EXPECT_EQ(blocks_of_squares(std::int64_t{1} << 42), 4096);
}

}  // namespace
}  // namespace lockstep::cuda
