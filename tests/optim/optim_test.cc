// Optimizer, initial weights and the norm's squares: right, and the same bits however a unit's
// buffer is cut.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/random.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/init.h"
#include "lockstep/optim/squares.h"
#include "lockstep/tensor/strict_kernels.h"

namespace lockstep::optim {
namespace {

using model::FlatLayout;
using model::FlatRange;

constexpr std::int64_t kShardCounts[] = {1, 2, 3, 4, 8};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble};

model::Model model(bool tied) {
  tensor::request_strict_kernels();  // one thread
  model::ModelConfig config;
  config.layers = 2;
  config.hidden = 48;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 72;
  config.vocab = 102;
  config.max_positions = 32;
  config.tied = tied;
  return model::describe(config).value();
}

// Biases, gains and positions too.
model::Model gpt2() {
  model::ModelConfig config = model(true).config;
  config.family = model::Family::kGpt2;
  config.norm = model::NormKind::kLayerNorm;
  config.kv_heads = config.heads;
  config.qkv_bias = config.linear_bias = true;
  return model::describe(config).value();
}

// Every unit of a model with its layout.
struct UnitCase {
  int position;
  FlatLayout layout;
};
std::vector<UnitCase> units_of(const model::Model& model, std::int64_t tp = 1) {
  const auto layouts = model::flat_layouts(model, tp);
  std::vector<UnitCase> units;
  for (int position = 0; position < model.num_units(); ++position)
    units.push_back(
        {position,
         layouts[static_cast<std::size_t>(model.order[static_cast<std::size_t>(position)])]});
  return units;
}

// Normal numbers in the layout's first `size` elements and zeros after them, up to a padding that
// those of 1, 2, 3, 4 and 8 shards all fit into.
at::Tensor drawn(const FlatLayout& layout, at::ScalarType type, const char* name, double scale) {
  const RandomStream stream(7, name);
  const at::Tensor values = at::zeros({layout.padded(24)}, at::kDouble);
  for (std::int64_t i = 0; i < layout.size; ++i)
    values.mutable_data_ptr<double>()[i] = scale * stream.normal(static_cast<std::uint64_t>(i));
  return values.to(type);
}

at::Tensor piece(const at::Tensor& whole, FlatRange range) {
  return whole.narrow(0, range.begin, range.size()).clone();
}

struct Adam {
  at::Tensor param, grad;
  State moments;
  Adam(const FlatLayout& layout, at::ScalarType type)
      : param(drawn(layout, type, "param", 1)),
        grad(drawn(layout, type, "grad", 0.1)),
        moments{drawn(layout, type, "first", 0.1), drawn(layout, type, "second", 0.1).abs()} {}
  Adam(const Adam& whole, FlatRange range)
      : param(piece(whole.param, range)),
        grad(piece(whole.grad, range)),
        moments{piece(whole.moments.first, range), piece(whole.moments.second, range)} {}
};

// A master goes the way of f32 parameters, bit for bit, whatever the working ones held; those
// become its rounding.
TEST(AdamW, UpdatesTheMasterAndRoundsIt) {
  const model::Model described = model(false);
  const auto units = units_of(described);
  const auto& [position, layout] = units.front();
  const FlatRange all = {0, layout.padded(1)};
  Adam plain(Adam(layout, at::kFloat), all), mixed(Adam(layout, at::kFloat), all);
  mixed.moments.master = std::exchange(mixed.param, at::zeros({all.size()}, at::kBFloat16));
  for (int count = 1; count <= 3; ++count)
    for (Adam* adam : {&plain, &mixed})
      update({}, count, layout, all, adam->param, adam->grad.clone(), adam->moments, 0.5);
  EXPECT_TRUE(at::equal(mixed.moments.master, plain.param));
  EXPECT_TRUE(at::equal(mixed.moments.second, plain.moments.second));
  EXPECT_TRUE(at::equal(mixed.param, plain.param.to(at::kBFloat16)));
}

// The recurrences of arXiv 1711.05101, algorithm 2, for one element, in extended precision.
struct Element {
  long double param, first, second;
  void update(const AdamW& settings, std::int64_t count, long double grad, long double decay) {
    param -= settings.lr * decay * param;
    first = settings.beta1 * first + (1 - static_cast<long double>(settings.beta1)) * grad;
    second = settings.beta2 * second + (1 - static_cast<long double>(settings.beta2)) * grad * grad;
    const long double corrected_first =
        first / (1 - std::pow(static_cast<long double>(settings.beta1), count));
    const long double corrected_second =
        second / (1 - std::pow(static_cast<long double>(settings.beta2), count));
    param -= settings.lr * corrected_first / (std::sqrt(corrected_second) + settings.eps);
  }
};

TEST(AdamW, FollowsTheFormulaAndDecaysWhatDecays) {
  AdamW settings;
  settings.lr = 0.01;
  settings.weight_decay = 0.3;
  const double scale = 0.37;  // of a clipped gradient
  const model::Model described = model(true);
  for (const auto& [position, layout] : units_of(described)) {
    const FlatRange all = {0, layout.padded(1)};
    Adam adam(Adam(layout, at::kDouble), all);
    const at::Tensor grad = adam.grad.clone(), start = adam.param.clone();
    std::vector<Element> expected;
    for (std::int64_t i = 0; i < all.size(); ++i)
      expected.push_back({adam.param.const_data_ptr<double>()[i],
                          adam.moments.first.const_data_ptr<double>()[i],
                          adam.moments.second.const_data_ptr<double>()[i]});
    for (std::int64_t count = 1; count <= 4; ++count) {
      adam.grad.copy_(grad);
      update(settings, count, layout, all, adam.param, adam.grad, adam.moments, scale);
      for (std::int64_t i = 0; i < all.size(); ++i) {
        Element& one = expected[static_cast<std::size_t>(i)];
        if (i < std::max(layout.decay_end, layout.params.back().end()))
          one.update(settings, count,
                     static_cast<long double>(scale) * grad.const_data_ptr<double>()[i],
                     i < layout.decay_end ? settings.weight_decay : 0);
        ASSERT_NEAR(adam.param.const_data_ptr<double>()[i], static_cast<double>(one.param), 1e-14)
            << "element " << i << " of unit " << position << ", update " << count;
        ASSERT_NEAR(adam.moments.first.const_data_ptr<double>()[i], static_cast<double>(one.first),
                    1e-15);
        ASSERT_NEAR(adam.moments.second.const_data_ptr<double>()[i],
                    static_cast<double>(one.second), 1e-15);
      }
    }
  }
}

// Of all gradients those in proportion to the quotient of their weights move an element most.
TEST(AdamW, MovesAnElementAsFarAsItsLargestMove) {
  AdamW settings;
  settings.lr = 1, settings.eps = 0;
  const auto last_move = [&](const std::vector<double>& grads) {
    Element one{0, 0, 0};
    long double before = 0;
    for (std::size_t i = 0; i < grads.size(); ++i) {
      before = one.param;
      one.update(settings, static_cast<std::int64_t>(i) + 1, grads[i], 0);
    }
    return static_cast<double>(std::abs(one.param - before));
  };
  for (std::int64_t count = 1; count <= 6; ++count) {
    const double largest = largest_move(settings, count);
    std::vector<double> grads(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      grads[static_cast<std::size_t>(i)] =
          std::pow(settings.beta1 / settings.beta2, static_cast<double>(count - 1 - i));
    EXPECT_NEAR(last_move(grads), largest, 1e-14) << count;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const RandomStream stream(seed, "grads");
      for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = stream.normal(i);
      EXPECT_LE(last_move(grads), largest * (1 + 1e-14)) << count;
    }
  }
  EXPECT_EQ(largest_move(settings, 1), 1);
}

// With no gradient and no moments, decay is all that is left: norms keep their bits.
void expect_decay_of_matrices_alone(const model::Model& described) {
  for (const auto& [position, layout] : units_of(described)) {
    const FlatRange all = {0, layout.padded(1)};
    Adam adam(Adam(layout, at::kFloat), all);
    adam.grad.zero_(), adam.moments.first.zero_(), adam.moments.second.zero_();
    const at::Tensor before = adam.param.clone();
    update({}, 1, layout, all, adam.param, adam.grad, adam.moments, 1.0);
    for (const model::FlatParam& place : layout.params) {
      const model::Param& param =
          described.unit(position).params[static_cast<std::size_t>(place.param)];
      EXPECT_EQ(param.decays, param.shape.size() == 2) << param.name;
      const bool kept = at::equal(adam.param.narrow(0, place.offset, place.numel),
                                  before.narrow(0, place.offset, place.numel));
      EXPECT_EQ(kept, !param.decays) << param.name;
    }
  }
}

TEST(AdamW, NormsAndBiasesDoNotDecay) {
  expect_decay_of_matrices_alone(model(false));
  expect_decay_of_matrices_alone(gpt2());
}

TEST(AdamW, BitsDoNotDependOnTheShards) {
  AdamW settings;
  for (at::ScalarType type : kTypes)
    for (const auto& [position, layout] : units_of(model(true)))
      for (double scale : {1.0, 0.37}) {
        const Adam start(layout, type);
        Adam whole(start, {0, layout.padded(24)});
        for (std::int64_t count : {1, 2})
          update(settings, count, layout, {0, layout.padded(24)}, whole.param, whole.grad,
                 whole.moments, scale);
        for (std::int64_t shards : kShardCounts)
          for (std::int64_t index = 0; index < shards; ++index) {
            const FlatRange range = layout.shard(shards, index);
            Adam shard(start, range);
            for (std::int64_t count : {1, 2})
              update(settings, count, layout, range, shard.param, shard.grad, shard.moments, scale);
            const Adam expected(whole, range);
            EXPECT_TRUE(at::equal(shard.param, expected.param) &&
                        at::equal(shard.moments.first, expected.moments.first) &&
                        at::equal(shard.moments.second, expected.moments.second))
                << "shard " << index << " of " << shards << " of unit " << position;
          }
      }
}

at::Tensor initial(const model::Model& model, const UnitCase& unit, FlatRange range,
                   std::uint64_t seed, at::ScalarType type) {
  const at::Tensor out = at::empty({range.size()}, type).fill_(99);
  write_initial(model, unit.position, unit.layout, range, seed, out);
  return out;
}

TEST(Init, RememberedDrawsAreTheSameBits) {
  const model::Model described = model(true);
  for (at::ScalarType type : kTypes) {
    Draws draws;
    for (int round = 0; round < 2; ++round)
      for (const UnitCase& unit : units_of(described))
        for (std::int64_t index = 0; index < 3; ++index) {
          const FlatRange range = unit.layout.shard(3, index);
          const at::Tensor out = at::empty({range.size()}, type).fill_(99);
          write_initial(described, unit.position, unit.layout, range, 1234, out, {},
                        {.known = &draws});
          EXPECT_TRUE(at::equal(out, initial(described, unit, range, 1234, type)));
        }
  }
}

// 196,000 elements, in several pieces.
model::Model broad() {
  model::ModelConfig config = model(false).config;
  config.vocab = 4083;
  return model::describe(config).value();
}

TEST(Init, ThreadsDrawTheSameBitsAndTellHowManyThereAre) {
  const model::Model described = broad();
  const UnitCase unit = units_of(described).front();
  const FlatRange range = {1, unit.layout.size - 3};
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor alone = at::empty({range.size()}, type);
    write_initial(described, 0, unit.layout, range, 5, alone, {}, {.threads = 1});
    for (const int threads : {0, 2, 3, 64}) {
      std::int64_t told = 0, times = 0;
      const at::Tensor out = at::empty({range.size()}, type);
      write_initial(described, 0, unit.layout, range, 5, out, {},
                    {.threads = threads, .between = [&](std::int64_t n) { told += n, ++times; }});
      EXPECT_TRUE(at::equal(out, alone)) << threads;
      EXPECT_EQ(told, range.size());
      EXPECT_GE(times, 1);
    }
  }
}

TEST(Init, EndsBetweenPiecesWhenTold) {
  const model::Model described = broad();
  const UnitCase unit = units_of(described).front();
  const FlatRange range = {0, unit.layout.size};
  for (const int threads : {1, 2}) {
    std::int64_t told = 0;
    const Drawing drawing = {.threads = threads, .between = [&](std::int64_t n) {
                               told += n;
                               throw std::runtime_error("enough");
                             }};
    const at::Tensor out = at::empty({range.size()}, at::kFloat);
    EXPECT_THROW(write_initial(described, 0, unit.layout, range, 5, out, {}, drawing),
                 std::runtime_error);
    EXPECT_GT(told, 0);
    EXPECT_TRUE(threads > 1 || told < range.size());  // another may have drawn the rest by then
  }
}

TEST(Init, AnyRangeOfAnyShardsHasTheBitsOfTheWhole) {
  for (bool tied : {false, true})
    for (at::ScalarType type : kTypes) {
      const model::Model described = model(tied);
      for (const UnitCase& unit : units_of(described)) {
        const at::Tensor whole = initial(described, unit, {0, unit.layout.padded(24)}, 1234, type);
        for (std::int64_t shards : kShardCounts)
          for (std::int64_t index = 0; index < shards; ++index) {
            const FlatRange range = unit.layout.shard(shards, index);
            EXPECT_TRUE(
                at::equal(initial(described, unit, range, 1234, type), piece(whole, range)));
          }
        for (std::int64_t begin : {1, 31, 255, 1000}) {
          const FlatRange odd = {begin, begin + 777};
          EXPECT_TRUE(at::equal(initial(described, unit, odd, 1234, type), piece(whole, odd)));
        }
        for (const FlatRange& gap : unit.layout.gaps(24))
          EXPECT_EQ(whole.narrow(0, gap.begin, gap.size()).abs().max().item<double>(), 0);
      }
    }
}

// Of a tensor rank: the rows or columns of the whole that are its own.
TEST(Init, ATensorRankHasItsPartOfTheWhole) {
  for (bool tied : {false, true}) {
    const model::Model described = model(tied);
    const auto shares = model::flat_layouts(described, 2);
    for (const UnitCase& unit : units_of(described))
      for (std::int64_t coord : {0, 1}) {
        const int kind = described.order[static_cast<std::size_t>(unit.position)];
        const FlatLayout& share = shares[static_cast<std::size_t>(kind)];
        const at::Tensor whole = initial(described, unit, {0, unit.layout.size}, 1234, at::kDouble);
        const at::Tensor own = at::empty({share.padded(3)}, at::kDouble).fill_(99);
        for (std::int64_t shard = 0; shard < 3; ++shard) {
          const FlatRange range = share.shard(3, shard);
          write_initial(described, unit.position, share, range, 1234,
                        own.narrow(0, range.begin, range.size()), {2, coord});
        }
        for (const model::FlatParam& place : share.params) {
          const model::Param& param =
              described.unit(unit.position).params[static_cast<std::size_t>(place.param)];
          const model::TensorShard cut = model::tensor_shard(param, 2, coord);
          const model::FlatParam& all = unit.layout.of(place.param);
          const at::Tensor expected = whole.narrow(0, all.offset, all.numel)
                                          .view(param.shape)
                                          .narrow(cut.dim, cut.begin, cut.length)
                                          .reshape({-1});
          EXPECT_TRUE(at::equal(own.narrow(0, place.offset, place.numel), expected))
              << param.name << " of rank " << coord;
        }
        for (const FlatRange& gap : share.gaps(3))
          EXPECT_EQ(own.narrow(0, gap.begin, gap.size()).abs().max().item<double>(), 0);
      }
  }
}

TEST(Init, WorkingWeightsAreTheRoundingOfTheMaster) {
  const model::Model described = model(true);
  for (const UnitCase& unit : units_of(described)) {
    const FlatRange all = {0, unit.layout.size};
    EXPECT_TRUE(at::equal(initial(described, unit, all, 5, at::kBFloat16),
                          initial(described, unit, all, 5, at::kFloat).to(at::kBFloat16)));
  }
}

// What is written where, against the definition; distribution and independence.
TEST(Init, IsThePureFunctionOfSeedNameAndIndex) {
  for (const model::Model& described : {model(false), model(true), gpt2()}) {
    const std::vector<UnitCase> units = units_of(described);
    const at::Tensor embed =
        initial(described, units.front(), {0, units.front().layout.size}, 5, at::kDouble);
    for (const UnitCase& unit : units) {
      const FlatRange all = {0, unit.layout.size};
      const at::Tensor values = initial(described, unit, all, 5, at::kDouble);
      EXPECT_FALSE(at::equal(values, initial(described, unit, all, 6, at::kDouble)));
      for (const model::FlatParam& place : unit.layout.params) {
        const model::Param& param =
            described.unit(unit.position).params[static_cast<std::size_t>(place.param)];
        const at::Tensor part = values.narrow(0, place.offset, place.numel);
        const std::string name = model::name_at(param.name, model::Model::layer(unit.position));
        if (param.tied) {
          EXPECT_TRUE(at::equal(part, embed.narrow(0, 0, place.numel))) << name;
          continue;
        }
        if (param.init.kind != model::InitKind::kNormal) {
          const double value = name.ends_with(".bias") ? 0.0 : 1.0;
          EXPECT_EQ(part.min().item<double>(), value) << name;
          EXPECT_EQ(part.max().item<double>(), value) << name;
          continue;
        }
        // What adds to the residual sum is smaller by the root of 2 x 2 layers (GPT-2 report, 2.3).
        const bool adds = name.ends_with("attn.o.weight") || name.ends_with("mlp.down.weight");
        EXPECT_DOUBLE_EQ(param.init.std, adds ? 0.02 / 2 : 0.02) << name;
        const RandomStream stream(5, name);
        for (std::int64_t i : {std::int64_t{0}, std::int64_t{17}, place.numel - 1})
          EXPECT_EQ(part.const_data_ptr<double>()[i],
                    param.init.std * stream.normal(static_cast<std::uint64_t>(i)))
              << name;
        const double n = static_cast<double>(place.numel), std = param.init.std;
        EXPECT_NEAR(part.mean().item<double>(), 0, 5 * std / std::sqrt(n)) << name;
        EXPECT_NEAR(part.std().item<double>(), std, 5 * std / std::sqrt(2 * n)) << name;
      }
    }
  }
}

// Every old run hangs on these bits. Of f32, which the last bit of a C library's log and cos
// reaches once in 2^28 draws.
TEST(Init, KeepsItsBits) {
  Xxh3 digest;
  for (const model::Model& described : {model(false), model(true), gpt2()})
    for (const UnitCase& unit : units_of(described)) {
      const at::Tensor values = initial(described, unit, {0, unit.layout.size}, 1234, at::kFloat);
      digest.update(std::as_bytes(
          std::span(values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel()))));
    }
  EXPECT_EQ(to_hex(digest.digest64()), "1a7ac6626616ff8c");
}

TEST(Squares, BitsDoNotDependOnTheShardsAndNothingIsCountedTwice) {
  for (at::ScalarType type : kTypes)
    for (bool tied : {false, true})
      for (const auto& [position, layout] : units_of(model(tied))) {
        const at::Tensor grad = drawn(layout, type, "grad", std::pow(1e-3, position));
        std::vector<ExactSum> sums(std::size(kShardCounts));
        for (std::size_t i = 0; i < std::size(kShardCounts); ++i)
          for (std::int64_t index = 0; index < kShardCounts[i]; ++index) {
            const FlatRange range = layout.shard(kShardCounts[i], index);
            add_squares(layout, range, piece(grad, range), sums[i]);
          }
        long double oracle = 0;
        const at::Tensor wide = grad.to(at::kDouble);
        for (std::int64_t i = layout.tied_copy ? layout.tied.end : 0; i < grad.numel(); ++i)
          oracle += static_cast<long double>(wide.const_data_ptr<double>()[i]) *
                    wide.const_data_ptr<double>()[i];
        for (const ExactSum& sum : sums) EXPECT_EQ(sum.to_words(), sums[0].to_words());
        // A tile rounds its f64 squares once each, 31 sums in each of 8 lanes, and 3 of lanes.
        const double bound = 36 * std::numeric_limits<double>::epsilon() / 2;
        EXPECT_NEAR(sums[0].result() / static_cast<double>(oracle), 1, bound)
            << "unit " << position;
      }
}

// Ranks that share a unit: what all of them hold is the first one's to bring, and what three hold
// because there are two heads of keys is that of the first of the three.
TEST(Squares, OfTensorRanksCountWhatSeveralHoldOnce) {
  for (bool tied : {false, true})
    for (const auto& [position, layout] : units_of(model(tied), 6)) {
      const at::Tensor grad = drawn(layout, at::kDouble, "grad", 300).round_();
      long double all = 0, replicated = 0, copied = 0;
      for (std::int64_t i = layout.tied_copy ? layout.tied.end : 0; i < grad.numel(); ++i) {
        const long double x = grad.const_data_ptr<double>()[i];
        all += x * x;
        if (i >= layout.replicated.begin && i < layout.replicated.end) replicated += x * x;
        for (const FlatRange& range : layout.copied)
          if (i >= range.begin && i < range.end) copied += x * x;
      }
      EXPECT_EQ(replicated > 0, position > 0);
      EXPECT_EQ(copied > 0, position == 1 || position == 2);
      for (std::int64_t coord : {0, 1, 3, 5})
        for (std::int64_t shards : kShardCounts) {
          ExactSum sum;
          for (std::int64_t index = 0; index < shards; ++index) {
            const FlatRange range = layout.shard(shards, index);
            add_squares(layout, range, piece(grad, range), sum, {6, coord});
          }
          long double mine = coord == 0 ? all : all - replicated;
          if (coord % 3 != 0) mine -= copied;
          EXPECT_EQ(sum.result(), static_cast<double>(mine)) << coord;
        }
    }
}

// Small whole numbers, whose tile sums are exact: the result is the oracle, rounded once.
TEST(Squares, AreExactWhereTilesAre) {
  const auto unit = units_of(model(false))[1];
  const at::Tensor grad = drawn(unit.layout, at::kFloat, "grad", 300).round_();
  long double oracle = 0;
  for (std::int64_t i = 0; i < grad.numel(); ++i)
    oracle +=
        static_cast<long double>(grad.const_data_ptr<float>()[i]) * grad.const_data_ptr<float>()[i];
  ExactSum sum;
  add_squares(unit.layout, {0, grad.numel()}, grad, sum);
  EXPECT_EQ(sum.result(), static_cast<double>(oracle));
  grad.mutable_data_ptr<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  add_squares(unit.layout, {0, grad.numel()}, grad, sum);
  EXPECT_TRUE(std::isnan(sum.result()));
}

}  // namespace
}  // namespace lockstep::optim
