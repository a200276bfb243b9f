#include "lockstep/cost/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/check.h"
#include "tests/cost/programs.h"

namespace lockstep::cost {
namespace {

using program::Op;
using program::OpKind;
using program::Period;
using program::Program;
using Kind = comm::OpKind;

constexpr std::int64_t kSeq = 16;

struct World {
  model::Model model;
  Program program;
  StepSizes sizes;
  mesh::Mesh mesh;

  Traffic of(std::int32_t rank) const {
    return step_traffic(program, model, sizes, mesh, Rank{rank});
  }
  Traffic at(int coord, std::int32_t shard) const {
    mesh::Coords coords;
    coords[mesh::Axis::kPipeline] = Coord{coord};
    coords[mesh::Axis::kDataShard] = Coord{shard};
    return of(mesh.rank(coords).value);
  }
  // Elements of a unit's buffer, padded for n shards.
  std::int64_t elements(int unit, std::int64_t n) const {
    const int kind = model.order[static_cast<std::size_t>(unit)];
    return flat_layouts(model)[static_cast<std::size_t>(kind)].padded(n);
  }
  std::int64_t all_elements(std::int64_t n) const {
    std::int64_t sum = 0;
    for (int unit = 0; unit < model.num_units(); ++unit) sum += elements(unit, n);
    return sum;
  }
};

World world_of(const Layout& layout, std::int64_t dp, std::int64_t dp_shard, std::int64_t tp = 1) {
  model::ModelConfig config = tiny(layout.tied).config;
  config.kv_heads = std::max(config.kv_heads, tp);
  const model::Model model = *model::describe(config);
  return {
      model,
      program_of(layout, model.num_units()),
      {.unit = {.batch = 2, .seq = kSeq, .tp = tp, .sequence_parallel = !layout.partial.empty()},
       .shards = dp_shard},
      mesh::Mesh::create({.tp = tp, .pp = layout.pp, .dp = dp, .dp_shard = dp_shard}).value()};
}

comm::Ledger::Entry entry(const Traffic& traffic, const std::string& axis, Kind op) {
  const auto found = traffic.find({axis, op});
  return found == traffic.end() ? comm::Ledger::Entry{} : found->second;
}
std::int64_t sent(const Traffic& traffic, const std::string& axis, Kind op) {
  return entry(traffic, axis, op).sent.value;
}
std::int64_t calls(const Traffic& traffic, const std::string& axis, Kind op) {
  return entry(traffic, axis, op).calls;
}

// The name of shard groups: context coordinates see different tokens, so they share too.
const std::string kShard = mesh::to_text(mesh::kDenseShard);

// The volumes of the ZeRO paper (arXiv 1910.02054, section 7) for one microbatch: 2, 2, 2 and at
// most 3 times the parameters, (n-1)/n of each; stage 3 keeps units where forward meets backward.
TEST(Traffic, VolumesAreThoseOfZero) {
  for (const std::int64_t n : {2, 3, 4}) {
    const World zero0 = world_of({.zero = 0}, n, n);
    std::int64_t padded = 0;  // an all_reduce pads each buffer to a multiple of n elements
    for (int unit = 0; unit < 6; ++unit) padded += (zero0.elements(unit, 1) + n - 1) / n * n;
    const std::int64_t small = 2 * (n - 1) * 8 * (1 + (144 + n - 1) / n);  // Count and Norm
    EXPECT_EQ(sent(zero0.of(0), "data", Kind::kAllReduce), 2 * (n - 1) * 4 * padded / n + small);
    EXPECT_EQ(calls(zero0.of(0), "data", Kind::kAllReduce), 6 + 2);
    for (const int zero : {1, 2, 3}) {
      const World world = world_of({.zero = zero}, n, n);
      const Traffic traffic = world.of(static_cast<std::int32_t>(n - 1));
      const std::int64_t once = (n - 1) * 4 * world.all_elements(n) / n;
      const std::int64_t gathered = sent(traffic, kShard, Kind::kAllGather);
      EXPECT_EQ(sent(traffic, kShard, Kind::kReduceScatter), once);
      EXPECT_EQ(sent(traffic, "data", Kind::kAllReduce), small);
      if (zero < 3) {
        EXPECT_EQ(gathered, once);
      } else {
        EXPECT_LE(gathered, 2 * once);
        EXPECT_GT(2 * gathered, 3 * once);
      }
    }
  }
}

// (n-1)/n (G P + r P) with the gathers and reductions that the program has, unit by unit.
TEST(Traffic, CountsEveryGatherAndReduction) {
  for (const int zero : {1, 2, 3})
    for (const int microbatches : {1, 3})
      for (const Period period : {Period::kStep, Period::kMicrobatch}) {
        const World world =
            world_of({.pp = 2, .microbatches = microbatches, .zero = zero, .period = period}, 4, 4);
        for (std::int32_t rank = 0; rank < 8; ++rank) {
          std::int64_t gathered = 0;
          std::int64_t reduced = 0;
          const Coord coord = world.mesh.coord(Rank{rank}, mesh::Axis::kPipeline);
          for (const Op& op : world.program.list(coord)) {
            if (op.kind == OpKind::kGather || op.kind == OpKind::kAllGatherUpdated)
              gathered += 3 * world.elements(op.unit, 4);
            if (op.kind == OpKind::kReduce) reduced += 3 * world.elements(op.unit, 4);
          }
          EXPECT_GT(gathered, 0);
          EXPECT_EQ(sent(world.of(rank), kShard, Kind::kAllGather), gathered);
          EXPECT_EQ(sent(world.of(rank), kShard, Kind::kReduceScatter), reduced);
        }
      }
}

TEST(Traffic, SmallSumsAndGroupsOfOneAreCountedAsTheCommunicatorDoes) {
  const Traffic alone = world_of({}, 1, 1).of(0);
  EXPECT_EQ(calls(alone, "data", Kind::kAllReduce), 6 + 2);  // six units, Count, Norm
  EXPECT_EQ(calls(alone, "pp", Kind::kAllReduce), 1);
  for (const auto& [key, counted] : alone) EXPECT_EQ(counted.sent.value, 0) << key.axis;

  const Traffic many = world_of({.pp = 3, .zero = 1, .replicas = true}, 4, 2).of(5);
  // Count: one word, padded to four; Norm: 2 x 71 + 2 words.
  EXPECT_EQ(sent(many, "data", Kind::kAllReduce), 2 * 3 * 8 + 2 * 3 * 36 * 8);
  EXPECT_EQ(calls(many, "data", Kind::kAllReduce), 2);
  EXPECT_EQ(sent(many, "pp", Kind::kAllReduce), 2 * 2 * 48 * 8);
  EXPECT_EQ(calls(many, "pp", Kind::kAllReduce), 1);
}

TEST(Traffic, PipelinesSendEveryBoundaryBothWays) {
  const World world = world_of({.pp = 3, .microbatches = 5}, 2, 2);
  const std::int64_t act = 4 * 2 * kSeq * 64;
  for (const auto& [coord, boundaries] : {std::pair{0, 1}, {1, 2}, {2, 1}}) {
    const Traffic traffic = world.at(coord, 0);
    EXPECT_EQ(entry(traffic, "pp", Kind::kSend),
              (comm::Ledger::Entry{boundaries * 5, Bytes{boundaries * 5 * act}}));
    EXPECT_EQ(entry(traffic, "pp", Kind::kRecv), (comm::Ledger::Entry{boundaries * 5, Bytes{0}}));
  }
}

// Hybrid sharding: shards are reduced within their group, then summed over the replicas.
TEST(Traffic, ReplicasSumShards) {
  const World world = world_of({.zero = 2, .replicas = true}, 6, 2);
  const Traffic traffic = world.of(3);
  EXPECT_EQ(sent(traffic, kShard, Kind::kReduceScatter), 4 * world.all_elements(2) / 2);
  std::int64_t pieces = 0;
  for (int unit = 0; unit < 6; ++unit) pieces += (world.elements(unit, 2) / 2 + 2) / 3;
  EXPECT_EQ(sent(traffic, "dp_replicate", Kind::kAllReduce), 2 * 2 * 4 * pieces);
  EXPECT_EQ(calls(traffic, "dp_replicate", Kind::kAllReduce), 6);
}

// Over the ranks of a shard group every element of the shared weight once, at both ends.
TEST(Traffic, TiedGradientsMeetOnceAtBothEnds) {
  const std::int64_t shared = 256 * 64;
  for (const int zero : {0, 1, 2, 3})
    for (const std::int64_t n : {1, 3, 80}) {
      const World world = world_of({.pp = 2, .zero = zero, .tied = true}, n, n);
      for (const int coord : {0, 1}) {
        std::int64_t all = 0;
        std::int64_t silent = 0;
        for (std::int32_t shard = 0; shard < n; ++shard) {
          const Traffic traffic = world.at(coord, shard);
          all += sent(traffic, "tied", Kind::kAllReduce);
          silent += calls(traffic, "tied", Kind::kAllReduce) == 0 ? 1 : 0;
        }
        // Of two ranks each sends half the piece twice.
        EXPECT_EQ(all, 4 * shared * (zero == 0 ? n : 1)) << "zero " << zero << " n " << n;
        // A tile each on 80 ranks: 64 tiles are shared, the others hold the norm and nothing.
        EXPECT_EQ(silent, zero > 0 && n == 80 ? 16 : 0);
      }
    }
  const World one = world_of({.pp = 1, .zero = 1, .tied = true}, 2, 2);
  ASSERT_EQ(std::ranges::count(one.program.list(Coord{0}), OpKind::kReduceTied, &Op::kind), 1);
  EXPECT_EQ(calls(one.of(0), "tied", Kind::kAllReduce), 0);
}

// Norm gains: two of every block, one of the head, 64 elements each. Over the ranks of a shard
// group every one of them once: 2 (t-1)/t of their bytes on each of t tensor ranks.
TEST(Traffic, ReplicatedGradientsMeetOnceOverTheTensorGroup) {
  const std::vector<bool> partial = {false, true, true, true, true, true};
  const std::int64_t gains = (4 * 2 + 1) * 64;
  for (const std::int64_t tp : {2, 4})
    for (const int zero : {0, 1, 2, 3})
      for (const std::int64_t n : {1, 3, 80}) {
        SCOPED_TRACE(testing::Message() << "tp " << tp << " zero " << zero << " n " << n);
        const World world =
            world_of({.zero = zero, .tensor_parallel = true, .partial = partial}, n, n, tp);
        const std::int64_t norm = 2 * (tp - 1) * 8 * (144 / tp);
        std::int64_t all = 0, silent = 0;
        for (std::int32_t shard = 0; shard < n; ++shard) {
          const Traffic traffic = world.at(0, shard);
          all += sent(traffic, "tp", Kind::kAllReduce) - norm;
          silent += calls(traffic, "tp", Kind::kAllReduce) == 1 ? 1 : 0;
        }
        EXPECT_EQ(all, 2 * (tp - 1) * 4 * gains / tp * (zero == 0 ? n : 1));
        EXPECT_EQ(silent > 0, zero > 0 && n > 1);
      }
}

// What passes send to the tensor group in volumes of the hidden state, (t-1)/t of it each: by
// Korthikanti et al. (arXiv 2205.05198, section 4.2.2), with the rows that weights' gradients
// gather again. The softmax of the head sends three numbers a token and rank.
struct Volumes {
  int forward, recompute, backward, input_grad, weight_grad;  // of a block
  int embed_forward, embed_grad, head;
};
constexpr Volumes kTensor = {4, 2, 4, 4, 0, 2, 0, 2};
constexpr Volumes kSequence = {4, 3, 6, 4, 4, 1, 1, 2};
static_assert(kTensor.forward + kTensor.backward == 8);
static_assert(kSequence.forward + kSequence.backward == 10);
static_assert(kSequence.forward + kSequence.input_grad + kSequence.weight_grad == 12);

std::int64_t volumes_of(const Volumes& v, const Op& op, int head) {
  const bool is_embed = op.unit == 0, is_head = op.unit == head;
  switch (op.kind) {
    case OpKind::kForward:
      return is_head ? 0 : is_embed ? v.embed_forward : v.forward;
    case OpKind::kRecompute:
      return v.recompute;
    case OpKind::kBackward:
      return is_head ? v.head : is_embed ? v.embed_grad : v.backward;
    case OpKind::kInputGrad:
      return is_embed ? 0 : v.input_grad;
    case OpKind::kWeightGrad:
      return is_embed ? v.embed_grad : v.weight_grad;
    default:
      return 0;
  }
}

TEST(Traffic, PassesSendTheVolumesOfTensorAndSequenceParallelism) {
  const std::vector<bool> partial = {false, true, true, true, true, true};
  int splits = 0, recomputes = 0;
  for (const std::int64_t tp : {2, 4})
    for (const bool sp : {false, true})
      for (const char* schedule : {"1f1b", "zb-h1"})
        for (const bool recompute : {false, true}) {
          SCOPED_TRACE(testing::Message() << schedule << " tp " << tp << " sp " << sp);
          Layout layout{.pp = 2, .microbatches = 3, .tensor_parallel = true, .schedule = schedule};
          if (sp) layout.partial = partial;
          if (recompute) layout.recompute = {false, true, false, true, true, false};
          const World world = world_of(layout, 1, 1, tp);
          const int head = world.program.step.head();
          const std::int64_t hidden = 2 * kSeq * 64 * 4;
          for (int coord = 0; coord < 2; ++coord) {
            std::int64_t volumes = 0, rest = 2 * 8 * 144;  // Norm
            for (const Op& op : world.program.list(Coord{coord})) {
              volumes += volumes_of(sp ? kSequence : kTensor, op, head);
              if (op.kind == OpKind::kBackward && op.unit == head) rest += 3 * 2 * kSeq * 4 * tp;
              if (op.kind == OpKind::kReduceReplicated)
                rest += 2 * 4 * 64 * (op.unit == head ? 1 : 2);
              splits += op.kind == OpKind::kWeightGrad ? 1 : 0;
              recomputes += op.kind == OpKind::kRecompute ? 1 : 0;
            }
            const Traffic traffic = world.at(coord, 0);
            std::int64_t all = 0;
            for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce})
              all += sent(traffic, "tp", kind);
            EXPECT_EQ(all, (volumes * hidden + rest) * (tp - 1) / tp);
          }
        }
  EXPECT_GT(splits, 0);
  EXPECT_GT(recomputes, 0);
}

// With several tensor ranks the norm is summed over them too, cut matrices are a t-th, and units
// without partial gradients send nothing more than their passes do.
TEST(Traffic, TensorRanksShareCutMatrices) {
  const World whole = world_of({.pp = 2, .zero = 1}, 2, 2);
  const World shared = world_of({.pp = 2, .zero = 1, .tensor_parallel = true}, 2, 2, 2);
  for (const int coord : {0, 1}) {
    const Traffic traffic = shared.at(coord, 0), once = whole.at(coord, 0);
    // The embedding has one sum, a block two each way, the head one and the norm one.
    EXPECT_EQ(calls(traffic, "tp", Kind::kAllReduce), 1 + 2 * 4 + 1);
    EXPECT_EQ(sent(traffic, "data", Kind::kAllReduce), sent(once, "data", Kind::kAllReduce));
    std::int64_t elements = 0;
    for (int unit = 3 * coord; unit < 3 * coord + 3; ++unit) {
      const auto kind =
          static_cast<std::size_t>(shared.model.order[static_cast<std::size_t>(unit)]);
      elements += flat_layouts(shared.model, 2)[kind].padded(2);
    }
    EXPECT_EQ(sent(traffic, kShard, Kind::kReduceScatter), 4 * elements / 2);
    EXPECT_LT(sent(traffic, kShard, Kind::kReduceScatter),
              sent(once, kShard, Kind::kReduceScatter));
  }
  EXPECT_THROW((void)world_of({}, 2, 2, 2).of(0), BrokenInvariant);
  EXPECT_THROW((void)world_of({.tensor_parallel = true}, 2, 2).of(0), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::cost
