#include "lockstep/model/flat_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

// Sizes of the family with nothing round about them but head_dim.
ModelConfig odd_llama(std::mt19937_64& random) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  ModelConfig c;
  c.name = "odd";
  c.layers = between(1, 3);
  c.hidden = between(3, 90);
  c.kv_heads = between(1, 3);
  c.heads = c.kv_heads * between(1, 3);
  c.head_dim = 2 * between(1, 9);
  c.ffn = between(1, 200);
  c.vocab = between(2, 400);
  c.max_positions = 64;
  c.tied = between(0, 1) == 1;
  c.qkv_bias = between(0, 1) == 1;
  c.qk_norm = between(0, 1) == 1 ? QkNorm::kPerHead : QkNorm::kNone;
  return c;
}

// Follows its predecessor without a gap. Stacked experts do not, nor does gpt2's MLP, which has no
// gate.
bool is_joined(const Model& model, const std::string& name) {
  if (model.config.family == Family::kGpt2 && name.ends_with(".mlp.up.weight")) return false;
  for (const char* ending : {".attn.k.weight", ".attn.v.weight", ".mlp.up.weight",
                             ".shared.up.weight", ".attn.k.bias", ".attn.v.bias"})
    if (name.ends_with(ending)) return true;
  return false;
}

// Whose parameters lie in the layout: experts' layouts come behind those of all units.
const Unit& unit_of(const Model& model, std::size_t layout) {
  return model.distinct[layout % model.distinct.size()];
}

std::vector<Model> models() {
  std::vector<Model> models;
  for (const CatalogRow& row : catalog()) models.push_back(*describe(row.config));
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) models.push_back(*describe(odd_llama(random)));
  return models;
}

TEST(FlatLayout, HoldsEveryTrainedParameterOnceOnABoundaryDecayingFirst) {
  for (const Model& model : models()) {
    const std::vector<FlatLayout> layouts = flat_layouts(model);
    const bool is_mixture = std::ranges::any_of(model.distinct, &Unit::has_experts);
    ASSERT_EQ(layouts.size(), model.distinct.size() * (is_mixture ? 2 : 1));
    for (std::size_t u = 0; u < layouts.size(); ++u) {
      SCOPED_TRACE(model.config.name + " unit " + std::to_string(u));
      const FlatLayout& flat = layouts[u];
      const Unit& unit = unit_of(model, u);
      std::vector<int> expected;
      for (const auto& [decays, cut, over_heads] : {std::tuple{true, true, false},
                                                    {true, false, false},
                                                    {false, false, false},
                                                    {false, false, true},
                                                    {false, true, false}})
        for (int i = 0; i < static_cast<int>(unit.params.size()); ++i)
          if (const Param& p = unit.params[static_cast<std::size_t>(i)];
              p.trained && p.decays == decays && p.sharded.empty() != cut &&
              p.over_heads == over_heads && (p.experts > 0) == (u >= model.distinct.size()))
            expected.push_back(i);
      ASSERT_EQ(flat.params.size(), expected.size());
      std::int64_t end = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const FlatParam& at = flat.params[i];
        const Param& param = unit.params[static_cast<std::size_t>(expected[i])];
        EXPECT_EQ(at.param, expected[i]);
        EXPECT_EQ(at, flat.of(expected[i]));
        EXPECT_EQ(at.numel, param.numel());
        if (is_joined(model, param.name)) {
          EXPECT_EQ(at.offset, end);
        } else {
          EXPECT_EQ(at.offset % 32, 0);
        }
        EXPECT_GE(at.offset, end);
        // No more than the boundary asks for, but beside a tied weight, where the other end's lie.
        if (flat.tied.size() == 0 || i == 0) {
          EXPECT_LT(at.offset, end + 32);
        }
        EXPECT_EQ(param.decays, at.end() <= flat.decay_end);
        EXPECT_EQ(!param.decays, at.offset >= flat.decay_end);
        end = at.end();
      }
      EXPECT_EQ(flat.size % 32, 0);
      EXPECT_GE(flat.size, end);
      if (flat.tied.size() == 0) {
        EXPECT_LT(flat.size, end + 32);
      }
    }
  }
}

// What is summed over the tensor group where it is partial: every replicated parameter, no other.
TEST(FlatLayout, ReplicatedParametersAreOneRun) {
  int runs = 0, interleaved = 0;
  for (const Model& model : models()) {
    const std::vector<FlatLayout> layouts = flat_layouts(model);
    for (std::size_t u = 0; u < layouts.size(); ++u) {
      const FlatLayout& flat = layouts[u];
      std::int64_t first = flat.size, last = 0;
      for (const FlatParam& at : flat.params) {
        const Param& param = unit_of(model, u).params[static_cast<std::size_t>(at.param)];
        const FlatRange inside = common(flat.replicated, {at.offset, at.end()});
        EXPECT_EQ(inside.size(), param.sharded.empty() ? at.numel : 0) << param.name;
        if (!param.sharded.empty()) continue;
        first = std::min(first, at.offset);
        last = std::max(last, at.end());
      }
      if (last > 0) {
        EXPECT_EQ(flat.replicated, (FlatRange{first, last}));
      } else {
        EXPECT_EQ(flat.replicated.size(), 0);
      }
      runs += last > 0;
      interleaved += last > 0 && last < flat.params.back().end();
    }
  }
  EXPECT_GT(runs, 200);
  EXPECT_GT(interleaved, 10);  // biases of cut matrices lie behind
}

// What is partial without sequence parallelism too: gains of single heads, by name.
TEST(FlatLayout, GainsOfHeadsEndTheReplicatedRun) {
  int found = 0;
  for (const Model& model : models()) {
    const FlatLayout flat = flat_layouts(model)[1];
    const bool has_some = model.config.qk_norm == QkNorm::kPerHead;
    for (const FlatParam& at : flat.params) {
      const std::string& name = model.distinct[1].params[static_cast<std::size_t>(at.param)].name;
      const bool is_gain =
          has_some && (name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight"));
      EXPECT_EQ(common(flat.over_heads, {at.offset, at.end()}).size(), is_gain ? at.numel : 0)
          << model.config.name << " " << name;
    }
    EXPECT_EQ(flat.partial(true), flat.replicated);
    EXPECT_EQ(flat.partial(false), flat.over_heads);
    EXPECT_EQ(flat.over_heads.size() > 0, has_some);
    if (has_some) {
      EXPECT_EQ(flat.over_heads.end, flat.replicated.end);
    }
    found += has_some;
  }
  EXPECT_GT(found, 40);
}

// Of `size` that `tp` ranks share in whole grains, what each has; 0 where they cannot.
std::int64_t share(const ShardedDim& cut, std::int64_t size, std::int64_t tp) {
  const std::int64_t grains = size / cut.grain;
  if (cut.padded) return (size + tp - 1) / tp;
  if (cut.grain > 1 && tp % grains == 0) return cut.grain;
  return grains % tp == 0 ? size / tp : 0;
}

// A rank of the tensor group holds the same parameters, of cut ones its piece.
TEST(FlatLayout, TensorRanksShareWhatTheirAxisCuts) {
  int odd = 0;
  for (const CatalogRow& row : catalog()) {
    const Model model = *describe(row.config);
    const auto share_of = [&](const Param& param, std::int64_t tp) {
      const auto cut = std::ranges::find_if(param.sharded, [](const ShardedDim& dim) {
        return dim.axis != mesh::Axis::kExpert;  // tensor ranks share every expert
      });
      if (cut == param.sharded.end()) return param.numel();
      const std::int64_t size = param.shape[static_cast<std::size_t>(cut->dim)];
      return param.numel() / size * share(*cut, size, tp);
    };
    for (const std::int64_t tp : {2, 4, 8}) {
      const auto fits = [&](const Unit& unit) {
        return std::ranges::all_of(unit.params,
                                   [&](const Param& param) { return share_of(param, tp) > 0; });
      };
      if (!std::ranges::all_of(model.distinct, fits)) {
        EXPECT_THROW((void)flat_layouts(model, tp), BrokenInvariant) << row.config.name << tp;
        continue;
      }
      const auto whole = flat_layouts(model), pieces = flat_layouts(model, tp);
      for (std::size_t u = 0; u < whole.size(); ++u) {
        ASSERT_EQ(whole[u].params.size(), pieces[u].params.size());
        for (std::size_t i = 0; i < whole[u].params.size(); ++i) {
          const FlatParam &one = whole[u].params[i], &piece = pieces[u].params[i];
          const Param& param = unit_of(model, u).params[static_cast<std::size_t>(one.param)];
          EXPECT_EQ(piece.param, one.param);
          EXPECT_EQ(piece.numel, share_of(param, tp)) << param.name;
          odd += piece.numel != param.numel() && piece.numel * tp != param.numel();
        }
        EXPECT_EQ(pieces[u].tied.size(), whole[u].tied.size() > 0 ? pieces[u].params[0].numel : 0);
      }
    }
  }
  EXPECT_GT(odd, 20);
}

TEST(FlatRange, CommonIsWhatBothHold) {
  EXPECT_EQ(common({2, 6}, {4, 9}), (FlatRange{4, 6}));
  EXPECT_EQ(common({4, 9}, {2, 6}), (FlatRange{4, 6}));
  EXPECT_EQ(common({2, 6}, {0, 9}), (FlatRange{2, 6}));
  EXPECT_EQ(common({2, 6}, {3, 3}), (FlatRange{3, 3}));
  EXPECT_EQ(common({2, 6}, {0, 1}), (FlatRange{2, 2}));
  EXPECT_EQ(common({2, 6}, {7, 9}), (FlatRange{6, 6}));
}

// By name, which flat_layout.cc does not look at.
TEST(FlatLayout, JoinsExactlyWhatOneProductServes) {
  int joined = 0;
  for (const Model& model : models()) {
    const FlatLayout flat = flat_layouts(model)[1];
    const auto name = [&](std::size_t i) {
      return model.distinct[1].params[static_cast<std::size_t>(flat.params[i].param)].name;
    };
    for (std::size_t i = 0; i < flat.params.size(); ++i) {
      if (!is_joined(model, name(i))) continue;
      std::string before = name(i);
      for (const auto& [own, other] : {std::pair{".k.", ".q."}, {".v.", ".k."}, {".up.", ".gate."}})
        if (const auto at = before.find(own); at != std::string::npos) {
          before.replace(at, std::string(own).size(), other);
          break;
        }
      EXPECT_EQ(name(i - 1), before);
      EXPECT_EQ(flat.params[i - 1].end(), flat.params[i].offset) << model.config.name;
      ++joined;
    }
  }
  EXPECT_GT(joined, 300);
}

TEST(FlatLayout, TiedWeightsLieAtTheSamePlaceOfBuffersOfOneSize) {
  int tied = 0;
  for (const Model& model : models()) {
    const std::vector<FlatLayout> layouts = flat_layouts(model);
    const auto embed = static_cast<std::size_t>(model.order.front());
    const auto head = static_cast<std::size_t>(model.order.back());
    if (!model.config.tied) {
      for (const FlatLayout& flat : layouts) {
        EXPECT_EQ(flat.tied, FlatRange{});
        EXPECT_FALSE(flat.tied_copy);
      }
      continue;
    }
    ++tied;
    EXPECT_EQ(layouts[embed].tied, (FlatRange{0, model.config.vocab * model.config.hidden}));
    EXPECT_EQ(layouts[embed].tied, layouts[head].tied);
    EXPECT_EQ(layouts[embed].size, layouts[head].size);
    EXPECT_TRUE(layouts[head].tied_copy && !layouts[embed].tied_copy);
    for (const auto& [unit, role] :
         {std::pair{embed, Role::kEmbedding}, std::pair{head, Role::kHead}}) {
      const FlatParam& first = layouts[unit].params.front();
      EXPECT_EQ(model.distinct[unit].params[static_cast<std::size_t>(first.param)].role, role);
      EXPECT_EQ(first.offset, layouts[unit].tied.begin);
      EXPECT_EQ(first.end(), layouts[unit].tied.end);
    }
    // One buffer has room for the states of both.
    for (const FlatParam& one : layouts[embed].params)
      for (const FlatParam& other : std::span(layouts[head].params).subspan(1))
        EXPECT_EQ(common({one.offset, one.end()}, {other.offset, other.end()}).size(), 0);
  }
  EXPECT_GT(tied, 40);
}

TEST(FlatLayout, ShardsCoverTheBufferOnceWithoutCuttingATile) {
  std::mt19937_64 random(6);
  for (const Model& model : models()) {
    for (const FlatLayout& flat : flat_layouts(model)) {
      const auto shards = static_cast<std::int64_t>(1 + random() % 70);
      const std::int64_t padded = flat.padded(shards);
      EXPECT_EQ(padded % (256 * shards), 0);
      EXPECT_GE(padded, flat.size);
      EXPECT_LT(padded, flat.size + 256 * shards);
      std::int64_t at = 0;
      for (std::int64_t i = 0; i < shards; ++i) {
        const FlatRange shard = flat.shard(shards, i);
        EXPECT_EQ(shard.begin, at);
        EXPECT_EQ(shard.size(), padded / shards);
        EXPECT_EQ(shard.begin % 256, 0);
        at = shard.end;
      }
      EXPECT_EQ(at, padded);
    }
  }
}

TEST(FlatLayout, GapsAreWhatNoParameterCovers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 60; ++i) {
    const Model model = *describe(odd_llama(random));
    for (const FlatLayout& flat : flat_layouts(model)) {
      const auto shards = static_cast<std::int64_t>(1 + random() % 5);
      std::vector<int> covered(static_cast<std::size_t>(flat.padded(shards)), 0);
      const auto cover = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t e = begin; e < end; ++e) ++covered[static_cast<std::size_t>(e)];
      };
      for (const FlatParam& param : flat.params) cover(param.offset, param.end());
      for (const FlatRange& gap : flat.gaps(shards)) {
        EXPECT_GT(gap.size(), 0);
        cover(gap.begin, gap.end);
      }
      EXPECT_TRUE(std::ranges::all_of(covered, [](int times) { return times == 1; }));
    }
  }
}

// Llamas that `tp` divides and that are not round otherwise.
ModelConfig odd_llama_for(std::mt19937_64& random, std::int64_t tp) {
  ModelConfig c = odd_llama(random);
  c.kv_heads *= tp;
  c.heads *= tp;
  c.ffn *= tp;
  c.vocab *= tp;
  return c;
}

// A rank's layout is that of a model whose cut sizes are a tp-th, element for element.
TEST(FlatLayout, TensorRanksHaveTheLayoutOfASmallerModel) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 60; ++i) {
    const auto tp = static_cast<std::int64_t>(1 + random() % 5);
    ModelConfig config = odd_llama_for(random, tp);
    const std::vector<FlatLayout> cut = flat_layouts(*describe(config), tp);
    config.kv_heads /= tp;
    config.heads /= tp;
    config.ffn /= tp;
    config.vocab /= tp;
    const std::vector<FlatLayout> small = flat_layouts(*describe(config));
    ASSERT_EQ(cut.size(), small.size());
    for (std::size_t u = 0; u < cut.size(); ++u) {
      EXPECT_EQ(cut[u].params, small[u].params);
      EXPECT_EQ(cut[u].size, small[u].size);
      EXPECT_EQ(cut[u].decay_end, small[u].decay_end);
      EXPECT_EQ(cut[u].tied, small[u].tied);
      EXPECT_EQ(cut[u].replicated, small[u].replicated);
    }
  }
}

TEST(FlatLayout, ShardsOfAllTensorRanksCoverAParameterOnceInWholeHeads) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 60; ++i) {
    const auto tp = static_cast<std::int64_t>(1 + random() % 5);
    const Model model = *describe(odd_llama_for(random, tp));
    for (const Unit& unit : model.distinct)
      for (const Param& param : unit.params) {
        std::int64_t at = 0;
        for (std::int64_t coord = 0; coord < tp; ++coord) {
          const TensorShard shard = tensor_shard(param, tp, coord);
          const std::int64_t size = param.shape[static_cast<std::size_t>(shard.dim)];
          if (param.role == Role::kNorm) {
            EXPECT_EQ(shard, (TensorShard{0, 0, size, 0, coord > 0}));
            continue;
          }
          EXPECT_EQ(shard.begin, at);
          EXPECT_EQ(shard.length, size / tp);
          if (param.role == Role::kAttention) {
            EXPECT_EQ(shard.begin % model.config.head_dim, 0);
          }
          EXPECT_EQ(shard.dim,
                    param.name.ends_with(".o.weight") || param.name.ends_with(".down.weight"));
          at += shard.length;
        }
      }
    EXPECT_ANY_THROW(tensor_shard(model.unit(1).params.back(), 7 * model.config.ffn, 0));
  }
}

// Where an element of a parameter lies along each dim.
std::vector<std::int64_t> position(const Param& param, std::int64_t element) {
  std::vector<std::int64_t> at(param.shape.size());
  for (std::size_t dim = param.shape.size(); dim-- > 0; element /= param.shape[dim])
    at[dim] = element % param.shape[dim];
  return at;
}

// The elements of the parameter that the rank holds, in row-major order, one by one.
std::vector<std::int64_t> elements_of(const Param& param, TensorPlace place) {
  const bool is_expert = param.experts > 0;  // of ranks side by side, each has a piece of it
  const TensorShard shard = tensor_shard(param, is_expert ? place.etp : place.tp,
                                         is_expert ? place.coord % place.etp : place.coord);
  std::vector<std::int64_t> held;
  for (std::int64_t element = 0; element < param.numel(); ++element) {
    const std::int64_t at = position(param, element)[static_cast<std::size_t>(shard.dim)];
    const std::int64_t expert = element / (param.numel() / param.shape[0]);
    const std::int64_t own = param.experts / place.ep;  // experts
    const bool is_own = param.experts == 0 || expert / own == place.expert_coord;
    if (is_own && at >= shard.begin && at < shard.begin + shard.length) held.push_back(element);
  }
  return held;
}

// Runs of pieces of the buffer, one element after the other, against every element's own position.
TEST(FlatRuns, AreTheElementsThatTheRankHolds) {
  for (const char* name : {"llama-tiny", "gpt2-tiny"}) {
    ModelConfig config = find(name)->config;
    config.vocab = 67;
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

// The same of experts that ranks share, cut by tensor ranks too: by all, or by some side by side.
TEST(FlatRuns, AreTheExpertsThatTheRankHolds) {
  ModelConfig config = find("mixtral-8x7b")->config;
  config.layers = 1, config.hidden = 8, config.heads = 4, config.kv_heads = 4, config.head_dim = 2;
  config.vocab = 16, config.max_positions = 8, config.moe.expert_ffn = 4, config.moe.experts = 6;
  const Model model = describe(config).value();
  const std::size_t block = model.distinct.size() + 1;
  for (const auto& [tp, etp] : {std::pair{1, 1}, {2, 2}, {2, 1}, {4, 4}, {4, 2}, {4, 1}})
    for (const std::int64_t ep : {1, 2, 3, 6}) {
      const FlatLayout flat = flat_layouts(model, tp, ep, etp)[block];
      for (std::int64_t coord = 0; coord < tp; ++coord)
        for (std::int64_t expert = 0; expert < ep; ++expert) {
          std::vector<std::vector<std::int64_t>> seen(model.distinct[1].params.size());
          const TensorPlace place = {tp, coord, ep, expert, etp};
          for (const FlatRun& run : flat_runs(model.distinct[1], flat, place, {0, flat.size}))
            for (std::int64_t i = 0; i < run.length; ++i)
              seen[static_cast<std::size_t>(run.param)].push_back(run.element + i);
          for (const FlatParam& at : flat.params)
            EXPECT_EQ(
                seen[static_cast<std::size_t>(at.param)],
                elements_of(model.distinct[1].params[static_cast<std::size_t>(at.param)], place))
                << "tp " << tp << " ep " << ep << " etp " << etp;
        }
    }
}

// Two key-value heads and GPT-2's vocabulary among eight ranks.
TEST(FlatLayout, TensorRanksPadTheVocabularyAndCopyKeyValueHeads) {
  ModelConfig config = find("llama-tiny")->config;
  config.heads = 8, config.kv_heads = 2, config.head_dim = 4, config.vocab = 50'257;
  config.qkv_bias = true;
  const Model model = describe(config).value();
  const auto shard = [&](int unit, const char* name, std::int64_t coord) {
    const auto& params = model.unit(unit).params;
    return tensor_shard(*std::ranges::find(params, name, &Param::name), 8, coord);
  };
  EXPECT_EQ(shard(0, "embed.weight", 0), (TensorShard{0, 0, 6283, 0, false}));
  EXPECT_EQ(shard(0, "embed.weight", 7), (TensorShard{0, 43'981, 6276, 7, false}));
  EXPECT_EQ(shard(1, "blocks.{i}.attn.q.weight", 3), (TensorShard{0, 12, 4, 0, false}));
  for (const char* name : {"blocks.{i}.attn.k.weight", "blocks.{i}.attn.v.bias"}) {
    EXPECT_EQ(shard(1, name, 0), (TensorShard{0, 0, 4, 0, false}));
    EXPECT_EQ(shard(1, name, 3), (TensorShard{0, 0, 4, 0, true}));
    EXPECT_EQ(shard(1, name, 4), (TensorShard{0, 4, 4, 0, false}));
  }
  const FlatLayout layout = flat_layouts(model, 8)[1];
  EXPECT_EQ(layout.copies, 4);
  ASSERT_EQ(layout.copied.size(), 2u);
  for (const FlatParam& at : layout.params) {
    const std::string& name = model.unit(1).params[static_cast<std::size_t>(at.param)].name;
    const bool is_copied = name.find("attn.k") != name.npos || name.find("attn.v") != name.npos;
    std::int64_t inside = 0;
    for (const FlatRange& range : layout.copied)
      inside += common({at.offset, at.end()}, range).size();
    EXPECT_EQ(inside, is_copied ? at.numel : 0) << name;
  }
  EXPECT_TRUE(flat_layouts(model, 2)[1].copied.empty());
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
