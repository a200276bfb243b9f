#include "lockstep/model/flat_runs.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

// Where an element of a parameter lies along each dim.
std::vector<std::int64_t> position(const Param& param, std::int64_t element) {
  std::vector<std::int64_t> at(param.shape.size());
  for (std::size_t dim = param.shape.size(); dim-- > 0; element /= param.shape[dim])
    at[dim] = element % param.shape[dim];
  return at;
}

// The elements of the parameter that the rank holds, in row-major order, one by one.
std::vector<std::int64_t> elements_of(const Param& param, TensorPlace place) {
  const TensorShard shard = tensor_shard(param, place.tp, place.coord);
  std::vector<std::int64_t> held;
  for (std::int64_t element = 0; element < param.numel(); ++element) {
    const std::int64_t at = position(param, element)[static_cast<std::size_t>(shard.dim)];
    if (at >= shard.begin && at < shard.begin + shard.length) held.push_back(element);
  }
  return held;
}

// Runs of pieces of the buffer, one element after the other, against every element's own position.
TEST(FlatRuns, AreTheElementsThatTheRankHolds) {
  for (const char* name : {"llama-tiny", "gpt2-tiny"}) {
    ModelConfig config = find(name)->config;
    config.kv_heads = config.heads;
    config.vocab = 68;
    const Model model = describe(config).value();
    for (const std::int64_t tp : {1, 2, 4}) {
      const std::vector<FlatLayout> layouts = flat_layouts(model, tp);
      for (std::size_t u = 0; u < model.distinct.size(); ++u)
        for (std::int64_t coord = 0; coord < tp; ++coord)
          for (const std::int64_t shards : {1, 3}) {
            SCOPED_TRACE(testing::Message() << name << " unit " << u << " tp " << tp);
            const Unit& unit = model.distinct[u];
            std::vector<std::vector<std::int64_t>> seen(unit.params.size());
            for (std::int64_t shard = 0; shard < shards; ++shard) {
              const FlatRange range = layouts[u].shard(shards, shard);
              std::int64_t at = range.begin;
              for (const FlatRun& run : flat_runs(unit, layouts[u], {tp, coord}, range)) {
                auto& elements = seen[static_cast<std::size_t>(run.param)];
                EXPECT_GE(run.at, at);
                EXPECT_EQ(run.at, layouts[u].of(run.param).offset +
                                      static_cast<std::int64_t>(elements.size()));
                EXPECT_GT(run.length, 0);
                for (std::int64_t i = 0; i < run.length; ++i) elements.push_back(run.element + i);
                at = run.at + run.length;
              }
              EXPECT_LE(at, range.end);
            }
            for (std::size_t p = 0; p < unit.params.size(); ++p)
              EXPECT_EQ(seen[p], elements_of(unit.params[p], {tp, coord})) << unit.params[p].name;
          }
    }
  }
}

// A whole parameter, and one that is cut by rows, is one run.
TEST(FlatRuns, AreAsLongAsTheyCanBe) {
  const Model model = describe(find("llama-tiny")->config).value();
  const std::vector<FlatLayout> layouts = flat_layouts(model, 2);
  const Unit& block = model.distinct[1];
  std::vector<int> runs(block.params.size());
  for (const FlatRun& run : flat_runs(block, layouts[1], {2, 1}, {0, layouts[1].size}))
    ++runs[static_cast<std::size_t>(run.param)];
  for (std::size_t p = 0; p < block.params.size(); ++p) {
    const Param& param = block.params[p];
    const bool by_columns = !param.sharded.empty() && param.sharded[0].dim == 1;
    EXPECT_EQ(runs[p], by_columns ? param.shape[0] : 1) << param.name;
  }
}

}  // namespace
}  // namespace lockstep::model
