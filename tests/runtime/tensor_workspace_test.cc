#include "lockstep/runtime/tensor_workspace.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/program/lower.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::runtime {
namespace {

using program::ValueKind;

constexpr StateRole kRoles[] = {StateRole::kParameter, StateRole::kFirstMoment,
                                StateRole::kSecondMoment};

model::Model model() {
  model::ModelConfig config;
  config.layers = 3;
  config.hidden = 32;
  config.heads = 2;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 40;
  config.vocab = 68;
  config.max_positions = 16;
  config.tied = true;
  return model::describe(config).value();
}

struct Case {
  int zero, pp;
  std::int64_t shards, replicas;
};
constexpr Case kCases[] = {{0, 1, 1, 1}, {0, 2, 1, 2}, {1, 1, 2, 1}, {1, 3, 4, 1}, {2, 2, 3, 1},
                           {2, 1, 2, 2}, {3, 1, 1, 1}, {3, 2, 4, 2}, {3, 5, 8, 1}};

program::StepShape step_of(const Case& about, int units) {
  program::StepShape step;
  step.shape = {about.pp, 1, 1};
  step.stage_begin = program::split_units(units, about.pp);
  step.zero = about.zero;
  return step;
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

WorkspaceSettings settings(DType dtype) {
  WorkspaceSettings settings;
  settings.unit = {.seq = 8, .dtype = dtype};
  settings.seed = 77;
  return settings;
}

// Calls `body` with the workspace of every rank of the case.
template <class Body>
void for_every_rank(const model::Model& model, const Case& about, DType dtype, Body body) {
  const data::MockTokens tokens(1, model.config.vocab, false);
  const program::StepShape step = step_of(about, model.num_units());
  for (int coord = 0; coord < about.pp; ++coord)
    for (std::int64_t replica = 0; replica < about.replicas; ++replica)
      for (std::int64_t shard = 0; shard < about.shards; ++shard) {
        const Place place = {{coord}, about.shards, shard, replica, {}};
        TensorWorkspace workspace(model, step, place, settings(dtype), tokens);
        for (int unit = 0; unit < model.num_units(); ++unit)
          if (step.holds({coord}, unit)) body(workspace, unit);
      }
}

// Elements `range` of a whole buffer of layout.size elements, zeros beyond its end.
at::Tensor cut(const at::Tensor& whole, model::FlatRange range) {
  const at::Tensor part = at::empty({range.size()}, whole.scalar_type()).zero_();
  const std::int64_t length = std::min(range.end, whole.numel()) - range.begin;
  if (length > 0) part.narrow(0, 0, length).copy_(whole.narrow(0, range.begin, length));
  return part;
}

std::vector<at::Tensor> whole_parameters(const model::Model& model) {
  std::vector<at::Tensor> wholes;
  for_every_rank(model, {0, 1, 1, 1}, DType::kF32, [&](TensorWorkspace& workspace, int unit) {
    wholes.push_back(workspace.state(unit, StateRole::kParameter)
                         .narrow(0, 0, workspace.layout(unit).size)
                         .clone());
  });
  return wholes;
}

void expect_same_bits(const Buffer& held, const at::Tensor& expected) {
  ASSERT_EQ(held.bytes(), static_cast<std::int64_t>(expected.nbytes()));
  EXPECT_EQ(
      std::memcmp(held.data, expected.const_data_ptr(), static_cast<std::size_t>(held.bytes())), 0);
}

// Masters are f32 in both types; what passes read is their rounding.
void expect_same_start(const model::Model& described, const std::vector<at::Tensor>& wholes,
                       DType dtype) {
  const auto working = tensor::scalar_type_of(dtype);
  for (const Case& about : kCases) {
    std::vector<std::int64_t> covered(wholes.size());
    for_every_rank(described, about, dtype, [&](TensorWorkspace& workspace, int unit) {
      const at::Tensor& whole = wholes[static_cast<std::size_t>(unit)];
      const model::FlatRange own = workspace.own_range(unit);
      covered[static_cast<std::size_t>(unit)] += own.size();
      EXPECT_TRUE(at::equal(workspace.state(unit, StateRole::kParameter), cut(whole, own)));
      EXPECT_EQ(workspace.state(unit, StateRole::kFirstMoment).abs().max().item<double>(), 0);
      EXPECT_EQ(workspace.state(unit, StateRole::kSecondMoment).abs().max().item<double>(), 0);
      EXPECT_EQ(workspace.holds({ValueKind::kParam, unit}), about.zero < 3);
      EXPECT_EQ(workspace.holds({ValueKind::kParamShard, unit}), about.zero == 3);
      if (about.zero == 3) {
        expect_same_bits(workspace.buffer({ValueKind::kParamShard, unit}),
                         cut(whole, own).to(working));
        return;
      }
      // All of them, not only the owned piece: there is no Publish before the first step.
      const Buffer held = workspace.buffer({ValueKind::kParam, unit});
      expect_same_bits(held, cut(whole, {0, held.count}).to(working));
    });
    // Pieces cover a unit's buffer once per copy; without shards every rank has all of it.
    const std::int64_t copies = about.replicas * (about.zero == 0 ? about.shards : 1);
    for (std::size_t unit = 0; unit < wholes.size(); ++unit) {
      EXPECT_GE(covered[unit], copies * wholes[unit].numel());
      EXPECT_LT(covered[unit], copies * (wholes[unit].numel() + model::kTile * about.shards));
    }
  }
}

TEST(TensorWorkspace, EveryLayoutStartsFromTheSameBits) {
  const model::Model described = model();
  for (const DType dtype : kTypes) expect_same_start(described, whole_parameters(described), dtype);
}

// Of every layout and type, with the state of a tied weight shared where both of its ends are one
// rank's.
TEST(TensorWorkspace, DrawsEveryElementOnceAndNothingThatIsLoaded) {
  const model::Model described = model();
  const std::vector<at::Tensor> wholes = whole_parameters(described);
  const data::MockTokens tokens(1, described.config.vocab, false);
  for (const DType dtype : kTypes)
    for (const Case& about : kCases)
      for (const bool is_loaded : {false, true}) {
        program::StepShape step = step_of(about, described.num_units());
        step.tied = true;
        std::int64_t drawn = 0, held = 0;
        WorkspaceSettings how = settings(dtype);
        how.is_loaded = is_loaded;
        how.drawing.between = [&](std::int64_t elements) { drawn += elements; };
        const Place place = {{0}, about.shards, about.shards - 1, 0, {}};
        TensorWorkspace workspace(described, step, place, how, tokens);
        for (int unit = 0; unit < described.num_units(); ++unit) {
          if (!step.holds({0}, unit)) continue;
          const bool is_shard = about.zero == 3, copies = unit == step.head() && about.pp == 1;
          const Buffer params =
              workspace.buffer({is_shard ? ValueKind::kParamShard : ValueKind::kParam, unit});
          const model::FlatRange all =
              is_shard ? workspace.own_range(unit) : model::FlatRange{0, params.count};
          const at::Tensor whole = wholes[static_cast<std::size_t>(unit)];
          expect_same_bits(params, cut(is_loaded ? whole.clone().zero_() : whole, all)
                                       .to(tensor::scalar_type_of(dtype)));
          held += all.size() - (copies ? common(all, workspace.layout(unit).tied).size() : 0);
        }
        if (is_loaded) {  // and there was nothing to load, or half of it
          EXPECT_EQ(drawn, 0);
          for (int unit = 0; unit < described.num_units(); ++unit)
            if (step.holds({0}, unit))
              for (StateRole role : kRoles)
                workspace.fill_state(unit, role,
                                     [](const model::FlatRange&, const at::Tensor& into) {
                                       into.narrow(0, 0, into.numel() / 2).fill_(3);
                                     });
          workspace.set_updates(5);
          workspace.begin_anew();
          how.is_loaded = false;
          const TensorWorkspace fresh(described, step, place, how, tokens);
          EXPECT_EQ(workspace.updates(), 0);
          for (int unit = 0; unit < described.num_units(); ++unit)
            if (step.holds({0}, unit))
              for (const model::FlatRun& run : model::flat_runs(
                       described.unit(unit), workspace.layout(unit), {}, workspace.own_range(unit)))
                for (StateRole role : kRoles) {
                  const auto part = [&](const TensorWorkspace& of) {
                    return of.state(unit, role)
                        .narrow(0, run.at - of.own_range(unit).begin, run.length);
                  };
                  EXPECT_TRUE(at::equal(part(workspace), part(fresh))) << unit;
                }
          continue;
        }
        // What a rank has of a buffer's gaps may be left out.
        const std::int64_t gaps = 2 * model::kTile * about.shards;
        EXPECT_LE(drawn, is_loaded ? 0 : held) << about.zero << about.pp << about.shards;
        EXPECT_GE(drawn, is_loaded ? 0 : held - gaps) << about.zero << about.pp << about.shards;
      }
}

TEST(TensorWorkspace, LoadedStateIsReadBack) {
  const model::Model described = model();
  for (const DType dtype : kTypes)
    for (const Case& about : kCases)
      for_every_rank(described, about, dtype, [&](TensorWorkspace& workspace, int unit) {
        const model::FlatRange own = workspace.own_range(unit);
        for (StateRole role : kRoles) {
          const at::Tensor whole = at::arange(workspace.layout(unit).size, at::kFloat)
                                       .add_(1000.0 * static_cast<int>(role));
          workspace.load_state(unit, role, whole);
          EXPECT_TRUE(at::equal(workspace.state(unit, role), cut(whole, own)));
          if (role != StateRole::kParameter) continue;
          const bool is_shard = about.zero == 3;
          const Buffer held =
              workspace.buffer({is_shard ? ValueKind::kParamShard : ValueKind::kParam, unit});
          expect_same_bits(held, cut(whole, is_shard ? own : model::FlatRange{0, held.count})
                                     .to(tensor::scalar_type_of(dtype)));
        }
      });
}

// Each of two ranks that share the units starts from its part of the whole, and its transfers are
// of the rows that it has.
TEST(TensorWorkspace, TensorRanksStartFromTheirPartOfTheSameBits) {
  const model::Model described = model();
  const std::vector<at::Tensor> wholes = whole_parameters(described);
  const std::vector<model::FlatLayout> layouts = model::flat_layouts(described);
  const data::MockTokens tokens(1, described.config.vocab, false);
  for (const Case& about : {kCases[0], kCases[2], kCases[8]})
    for (const bool sp : {false, true})
      comm::run_local(2, [&](comm::World& world) {
        const Deadline deadline = Deadline::after(Seconds{60});
        const auto comm = world.connect("tp", "tp", {{0}, {1}}, deadline);
        const nn::TensorGroup group(*comm, sp, Seconds{60});
        const program::StepShape step = step_of(about, described.num_units());
        const Place place = {{0},
                             about.shards,
                             std::min<std::int64_t>(1, about.shards - 1),
                             0,
                             {2, world.rank().value}};
        WorkspaceSettings how = settings(DType::kF32);
        how.unit.tp = 2;
        how.unit.sequence_parallel = sp;
        TensorWorkspace workspace(described, step, place, how, tokens, group);
        for (int unit = 0; unit < described.num_units(); ++unit) {
          if (!step.holds({0}, unit)) continue;
          const model::FlatRange own = workspace.own_range(unit);
          const at::Tensor state = workspace.state(unit, StateRole::kParameter);
          const auto kind =
              static_cast<std::size_t>(described.order[static_cast<std::size_t>(unit)]);
          std::int64_t compared = 0;
          for (const model::FlatRun& run :
               model::flat_runs(described.unit(unit), workspace.layout(unit), place.tensor, own)) {
            const std::int64_t from = layouts[kind].of(run.param).offset + run.element;
            EXPECT_TRUE(
                at::equal(state.narrow(0, run.at - own.begin, run.length),
                          wholes[static_cast<std::size_t>(unit)].narrow(0, from, run.length)));
            compared += run.length;
          }
          EXPECT_GT(compared, 0);
        }
        EXPECT_EQ(workspace.create({ValueKind::kRecvBuffer, 0}).count, 8 * 32 / (sp ? 2 : 1));
        EXPECT_THROW(TensorWorkspace(described, step, {}, settings(DType::kF32), tokens, group),
                     BrokenInvariant);
      });
}

// Embedding with positions and head with a norm: each has what the other has not.
model::Model with_positions() {
  model::ModelConfig config = model().config;
  config.family = model::Family::kGpt2;
  config.norm = model::NormKind::kLayerNorm;
  config.qkv_bias = config.linear_bias = true;
  return model::describe(config).value();
}

// Loads every unit's share of `values`, the units in this order, and reads them back.
void expect_read_back(TensorWorkspace& workspace, const model::Model& described,
                      const std::vector<int>& units, StateRole role) {
  const auto value_of = [&](int unit, int param, std::int64_t element) {
    const bool is_tied = described.unit(unit).params[static_cast<std::size_t>(param)].tied;
    return static_cast<float>(100 * (is_tied ? 0 : 7 * unit + param) + element % 97 + 1) +
           1000.0f * static_cast<float>(role);
  };
  const auto for_runs = [&](int unit, model::FlatRange range, auto body) {
    for (const model::FlatRun& run :
         model::flat_runs(described.unit(unit), workspace.layout(unit), {}, range))
      for (std::int64_t i = 0; i < run.length; ++i)
        body(run.at + i - range.begin, value_of(unit, run.param, run.element + i));
  };
  for (const int unit : units) {
    const at::Tensor whole = at::empty({workspace.layout(unit).size}, at::kFloat).fill_(-1);
    for_runs(unit, {0, whole.numel()},
             [&](std::int64_t at, float value) { whole.data_ptr<float>()[at] = value; });
    workspace.load_state(unit, role, whole);
  }
  for (const int unit : units) {
    const at::Tensor state = workspace.state(unit, role).contiguous();
    for_runs(unit, workspace.own_range(unit), [&](std::int64_t at, float value) {
      EXPECT_EQ(state.const_data_ptr<float>()[at], value);
    });
  }
}

// Whatever order they are loaded in, and although what one has lies in the other's gaps.
TEST(TensorWorkspace, BothEndsOfATiedWeightHaveOneState) {
  const model::Model described = with_positions();
  const int head = described.num_units() - 1;
  const data::MockTokens tokens(1, described.config.vocab, false);
  for (const DType dtype : kTypes)
    for (const Case& about : {Case{0, 1, 1, 1}, Case{1, 1, 2, 1}, Case{3, 1, 4, 1}})
      for (std::int64_t shard = 0; shard < about.shards; ++shard) {
        program::StepShape step = step_of(about, described.num_units());
        step.tied = true;
        TensorWorkspace workspace(described, step, {{0}, about.shards, shard, 0, {}},
                                  settings(dtype), tokens);
        for (const StateRole role : kRoles) {
          const bool is_one = role != StateRole::kParameter || dtype == DType::kBF16;
          EXPECT_EQ(workspace.state(0, role).data_ptr() == workspace.state(head, role).data_ptr(),
                    is_one);
          expect_read_back(workspace, described, {0, head}, role);
          expect_read_back(workspace, described, {head, 0}, role);
        }
      }
}

// What Publish sends lies inside the parameters and is what Update changes; the pieces of a shared
// weight are the same in embedding and head.
TEST(TensorWorkspace, OwnPartIsTheUpdatedPiece) {
  const model::Model described = model();
  for (const Case& about : kCases)
    for_every_rank(described, about, DType::kF32, [&](TensorWorkspace& workspace, int unit) {
      EXPECT_EQ(workspace.own_range(0), workspace.own_range(described.num_units() - 1));
      if (about.zero != 1 && about.zero != 2) return;
      const Buffer piece = workspace.own_part(unit);
      EXPECT_EQ(piece.data, workspace.state(unit, StateRole::kParameter).data_ptr());
      EXPECT_EQ(piece.count, workspace.own_range(unit).size());
    });
}

}  // namespace
}  // namespace lockstep::runtime
