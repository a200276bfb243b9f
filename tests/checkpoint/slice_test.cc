#include "lockstep/checkpoint/slice.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/checkpoint/sample.h"

namespace lockstep::checkpoint {
namespace {

Slice random_slice(const std::vector<std::int64_t>& shape, Dice& dice) {
  Slice slice = {"t", Role::kWeight, shape, whole(shape), 0, 0};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    slice.box.begin[dim] = roll(dice, 0, shape[dim] - 1);
    slice.box.extent[dim] = roll(dice, 1, shape[dim] - slice.box.begin[dim]);
    if (roll(dice, 0, 1) == 0) {
      slice.box.begin[dim] = 0;
      slice.box.extent[dim] = shape[dim];
    }
  }
  slice.begin = roll(dice, 0, slice.box.volume());
  slice.end = roll(dice, slice.begin, slice.box.volume());
  return slice;
}

TEST(Slice, RunsAreTheElementsThatBothHold) {
  Dice dice(1);
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<std::int64_t> shape;
    for (std::int64_t dim = roll(dice, 0, 4); dim > 0; --dim) shape.push_back(roll(dice, 1, 5));
    const Slice from = random_slice(shape, dice), to = random_slice(shape, dice);
    std::map<std::int64_t, std::int64_t> held;  // by global element, where `from` has it
    const auto sources = elements_of(from), targets = elements_of(to);
    for (std::size_t i = 0; i < sources.size(); ++i)
      held[sources[i]] = static_cast<std::int64_t>(i);
    std::vector<std::pair<std::int64_t, std::int64_t>> expected, found;
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (held.contains(targets[i])) expected.emplace_back(held[targets[i]], i);
    std::int64_t end = -1;
    for (const checkpoint::Run& run : common_runs(from, to)) {
      EXPECT_GT(run.length, 0);
      EXPECT_GE(run.target, end);
      end = run.target + run.length;
      for (std::int64_t i = 0; i < run.length; ++i)
        found.emplace_back(run.source + i, run.target + i);
    }
    ASSERT_EQ(found, expected) << "trial " << trial;
  }
}

TEST(Slice, RolesHaveNames) {
  for (const Role role : kAllRoles) EXPECT_EQ(parse_role(to_text(role)), role);
  EXPECT_EQ(parse_role("master"), std::nullopt);
  EXPECT_EQ(entry_name({"a.b", Role::kWeight, {}, {}, 0, 1}), "a.b");
  EXPECT_EQ(entry_name({"a.b", Role::kSecondMoment, {}, {}, 0, 1}), "a.b:second_moment");
}

model::Model model_of(bool tied, model::Family family) {
  model::ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.hidden = 16;
  config.heads = 4;
  config.kv_heads = family == model::Family::kGpt2 ? 4 : 2;
  config.head_dim = 4;
  config.ffn = 16;
  config.vocab = 10;
  config.max_positions = 8;
  config.tied = tied;
  if (family == model::Family::kGpt2) config.norm = model::NormKind::kLayerNorm;
  return model::describe(config).value();
}

// Whoever shares a unit, in tensor ranks and shards: those that are no copies hold everything once.
TEST(UnitSlices, OfAllRanksAreTheModelOnce) {
  for (const bool tied : {false, true})
    for (const model::Family family : {model::Family::kLlama, model::Family::kGpt2})
      for (const std::int64_t tp : {1, 2, 4})
        for (const std::int64_t shards : {1, 3}) {
          const model::Model model = model_of(tied, family);
          const auto layouts = model::flat_layouts(model, tp);
          std::map<std::string, std::vector<int>> times;
          for (const Slice& slice : model_slices(model, Role::kWeight))
            times[slice.tensor].resize(static_cast<std::size_t>(slice.size()));
          for (int unit = 0; unit < model.num_units(); ++unit)
            for (std::int64_t coord = 0; coord < tp; ++coord)
              for (std::int64_t shard = 0; shard < shards; ++shard) {
                const model::FlatLayout& layout =
                    layouts[static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)])];
                const model::FlatRange range = layout.shard(shards, shard);
                const model::TensorPlace place = {tp, coord};
                std::map<std::pair<std::string, std::int64_t>, std::int64_t> buffer;
                for (const UnitSlice& part :
                     unit_slices(model, unit, layout, place, range, Role::kWeight)) {
                  std::int64_t at = part.at;
                  for (const std::int64_t element : elements_of(part.slice)) {
                    buffer[{part.slice.tensor, element}] = at++;
                    ASSERT_TRUE(times.contains(part.slice.tensor)) << part.slice.tensor;
                    if (!part.is_copy)
                      ++times[part.slice.tensor][static_cast<std::size_t>(element)];
                  }
                }
                // flat_runs says the same in another way.
                std::size_t elements = 0;
                for (const model::FlatRun& run :
                     model::flat_runs(model.unit(unit), layout, place, range))
                  for (std::int64_t i = 0; i < run.length; ++i, ++elements) {
                    const model::Param& param =
                        model.unit(unit).params[static_cast<std::size_t>(run.param)];
                    std::string name = model::name_at(param.name, model::Model::layer(unit));
                    if (param.tied) name = model.unit(0).params[0].name;
                    ASSERT_EQ((buffer[{name, run.element + i}]), run.at + i) << name;
                  }
                ASSERT_EQ(buffer.size(), elements);
              }
          std::int64_t all = 0;
          for (const auto& [name, counts] : times)
            for (const int count : counts) {
              ASSERT_EQ(count, 1) << name << " tp " << tp << " shards " << shards;
              ++all;
            }
          EXPECT_EQ(all, model::count(model).total);
        }
}

}  // namespace
}  // namespace lockstep::checkpoint
