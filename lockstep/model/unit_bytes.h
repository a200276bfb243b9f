// What the bytes of a unit depend on, which models have passes at all, and the bytes of what units
// hand on. What happens inside a pass is a list (parts/unit_passes.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/context.h"
#include "lockstep/model/drop.h"

namespace lockstep::model {

// Whose kernels compute (nn/kernels.h).
enum class Kernels : std::uint8_t {
  kCpu,
  kDevice,  // of an accelerator; they run on a CPU too, for comparison
};

// Rows of a microbatch, a token and one of its experts, that were sent to experts of this rank: by
// all ranks that share them, and by this one.
struct RowsMet {
  std::int64_t all = 0, own = 0;
  bool operator==(const RowsMet&) const = default;
};

using RowsMetBy = std::map<std::pair<int, int>, RowsMet>;  // by unit and microbatch

// What the bytes of a unit depend on besides the model. Of ranks that share experts each is taken
// to meet as many rows as it sends (parts::UnitPasses::where_met).
struct UnitSizes {
  std::int64_t batch = 1;  // sequences in a microbatch
  std::int64_t seq = 1;    // tokens of one, those of a rank where context ranks share it
  DType dtype = DType::kF32;
  Drop drop = {};                      // of its rows alone
  std::int64_t head_chunk = 0;         // tokens whose logits exist at once; 0: the microbatch's
  std::int64_t tp = 1;                 // ranks that share the unit; divides heads and ffn
  std::int64_t cp = 1;                 // ranks that share a sequence
  CpMethod context = CpMethod::kRing;  // how they meet
  int threads = 1;                     // intra-op, each with scratch of its own
  bool packs_keys = true;              // on a CPU with units for bf16 (tensor/memory.h)
  bool sequence_parallel = false;  // they share also what lies between the tensor-parallel parts
  bool tp_overlap = true;          // they compute while their collectives are under way
  std::int64_t ep = 1;             // groups of `etp` ranks that share the experts
  // Tensor ranks that share an expert; absent: all. Fewer only under sequence parallelism.
  std::optional<std::int64_t> etp = {};
  double aux_loss_coeff = 0;  // of a mixture's losses (parts/experts.cc); 0: none
  double z_loss_coeff = 0;
  Kernels kernels = Kernels::kCpu;
  bool caches_keys = false;  // sequences grow, and nothing is trained: the one pass is kGenerate

  std::int64_t tokens() const { return batch * seq; }
  std::int64_t expert_ranks() const { return etp.value_or(tp); }
  // Tokens whose rows such ranks send to experts together.
  std::int64_t routed_tokens() const { return tokens() / tp * expert_ranks(); }
  std::int64_t width() const { return static_cast<std::int64_t>(size_of(dtype)); }
  // Of statistics, rotary tables and gradients of weights.
  std::int64_t wide() const { return static_cast<std::int64_t>(size_of(wide_type(dtype))); }
};

// Where elements are narrower than f32, norms, rotations and the embedding's gradient work on f32
// copies of a few rows at a time: about this many elements, so that they stay in a core's cache and
// are enough to be split among threads, for which LibTorch wants 32768 each.
inline constexpr std::int64_t kWideElements = 262144;
constexpr std::int64_t wide_rows(std::int64_t columns) {
  return columns < kWideElements ? kWideElements / columns : 1;
}

// What the gradient of attention over elements narrower than f32 works on (nn/attention_grad.h), of
// one thread: tiles of queries by keys twice in f32 and twice narrow, gradients of a head's keys
// and values and of a tile's queries, and a number for each of these.
struct AttentionTiles {
  std::int64_t seq, head_dim, queries, keys;
  constexpr AttentionTiles(std::int64_t tokens, std::int64_t dim)
      : seq(tokens),
        head_dim(dim),
        queries(tokens < 128 ? tokens : 128),
        keys(tokens < 512 ? tokens : 512) {}
  // As f32, of whole lines of a cache.
  constexpr std::int64_t floats() const {
    const std::int64_t all = 3 * queries * keys + (2 * seq + queries) * head_dim + queries;
    return (all + 15) / 16 * 16;
  }
};

// What attention works on that writes its scores down (nn/scored_attention.h): those of some
// queries of one head with all keys that any of them sees, and backwards their gradients. Heads of
// elements narrower than f32 are copied: keys and values, queries, what is added up of each.
struct ScoreTiles {
  std::int64_t seq, head_dim, queries, keys;
  constexpr ScoreTiles(std::int64_t tokens, std::int64_t dim, std::int64_t window)
      : seq(tokens),
        head_dim(dim),
        queries(tokens < 128 ? tokens : 128),
        keys(window == 0 || window + queries - 1 > tokens ? tokens : window + queries - 1) {}
  // As wide as statistics.
  constexpr std::int64_t elements(bool backward, bool narrow) const {
    const std::int64_t tiles = queries * keys;
    if (!narrow) return backward ? 2 * tiles : tiles;
    return backward ? 2 * tiles + (4 * seq + 3 * queries) * head_dim
                    : tiles + 2 * (seq + queries) * head_dim;
  }
  // The same over blocks of keys, whose results are added up: a block's has room beside.
  constexpr std::int64_t block_elements(bool backward, bool narrow) const {
    return elements(backward, narrow) + (backward || narrow ? 0 : queries * head_dim);
  }
};

// A trait of a model for which there are no lists, and in nn no passes.
struct UnsupportedFeature {
  std::string field;
  std::string value;
  std::string nearest;  // "norm_place = before"
};

// All of them.
std::vector<UnsupportedFeature> unsupported(const ModelConfig& config);

// Refuses, with the field's name, a model that has some. REQUIRES of all below: it does not.
Result<void> check_unit_bytes(const ModelConfig& config);

// [T, h]: a unit's output, the input of the next, and the gradient of either.
std::int64_t boundary_bytes(const ModelConfig& config, const UnitSizes& sizes);

// Cosines and sines of all positions, once for all blocks of a rank; 0 where positions are learned.
std::int64_t rope_bytes(const ModelConfig& config, const UnitSizes& sizes);

// Words of the exact sums of a rank that a device's kernels add to: loss, squares of gradients,
// those of the first microbatch's, and two losses of routers.
std::int64_t sum_bytes(const UnitSizes& sizes);

}  // namespace lockstep::model
