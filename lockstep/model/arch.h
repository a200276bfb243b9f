// A model as data: an ordered list of units (embedding, blocks, head), each with its parameters,
// its matrix products and its attention. Planner, checkpoint, converter and runtime all read this
// one description, so none of them has its own idea of a model.
//
// Units that are alike are stored once: describing a model costs the number of its distinct units,
// not of its layers or experts. Plain values; any thread may read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/segment.h"
#include "lockstep/mesh/axis.h"
#include "lockstep/model/model_config.h"

namespace lockstep::model {

enum class UnitKind : std::uint8_t {
  kEmbed,  // token (and position) embedding
  kBlock,  // one transformer layer
  kMtp,    // a multi-token-prediction layer
  kHead,   // final norm, projection to the vocabulary, loss
};

enum class Role : std::uint8_t {
  kEmbedding,
  kNorm,
  kAttention,
  kMlp,
  kRouter,
  kExpert,        // met by the tokens that are routed to it
  kSharedExpert,  // met by every token
  kHead,
};

enum class InitKind : std::uint8_t { kNormal, kOnes, kZeros };

struct Init {
  InitKind kind = InitKind::kNormal;
  double std = 0.0;  // of kNormal; projections back into the residual sum carry 1 / sqrt(2 layers)
  bool operator==(const Init&) const = default;
};

// `axis` cuts dimension `dim` into equal pieces, each a multiple of `grain` (a head is never cut:
// where there are more ranks than heads of keys, ranks side by side hold the same one).
struct ShardedDim {
  mesh::Axis axis = mesh::Axis::kTensor;
  int dim = 0;
  std::int64_t grain = 1;
  bool padded = false;  // the last pieces may be shorter: rows of zeros make all equal
  bool operator==(const ShardedDim&) const = default;
};

// Where a parameter lies in a Hugging Face checkpoint. In `pattern` "{i}" stands for the layer and
// "{e}" for the expert; empty means that it is not stored (a tied head).
struct HfPlace {
  std::string pattern;
  bool transposed = false;  // stored [in, out] (gpt2's Conv1D)
  int part = 0;             // which of `parts` equal pieces along the output dimension
  int parts = 1;
  bool operator==(const HfPlace&) const = default;
};

// One parameter, in global terms. Linear weights are [out, in]. The routed experts of a block are
// one parameter with a leading expert dimension, [experts, out, in].
struct Param {
  std::string name;  // "blocks.{i}.attn.q.weight"
  HfPlace hf;
  std::vector<std::int64_t> shape;
  std::vector<ShardedDim> sharded;  // empty: every rank of its stage holds all of it
  Role role = Role::kMlp;
  Init init;
  bool decays = true;   // weight decay applies (not to norms and biases)
  bool trained = true;  // false: updated without a gradient (router selection bias)
  bool tied = false;    // the embedding's weight again: held by this unit, counted there
  bool over_heads =
      false;  // every head uses all of it, so tensor ranks find summands of its gradient
  std::int64_t experts = 0;  // leading dimension of an expert parameter, else 0
  std::int64_t active = 0;   // how many of those a token meets

  std::int64_t numel() const;
  bool operator==(const Param&) const = default;
};

enum class Split : std::uint8_t {
  kNone,    // every tensor rank computes all of it
  kColumn,  // the tensor axis divides n
  kRow,     // the tensor axis divides k
};

// tokens x k times k x n. Experts: `count` such matrices, of which a token meets `active`; the
// expert axis divides count and the expert-tensor axis takes the tensor axis's place.
struct Matmul {
  std::string name;  // "qkv"
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t count = 1;
  std::int64_t active = 1;
  Split split = Split::kNone;
  bool expert = false;
  bool operator==(const Matmul&) const = default;
};

struct Attention {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t qk_dim = 0;  // per head; differs from v_dim only with MLA
  std::int64_t v_dim = 0;
  std::int64_t window = 0;  // keys a query sees at most, itself included; 0: all before it
  bool operator==(const Attention&) const = default;
};

struct Unit {
  UnitKind kind = UnitKind::kBlock;
  std::vector<Param> params;
  std::vector<Matmul> matmuls;
  std::optional<Attention> attention;
  bool has_experts() const;
  bool operator==(const Unit&) const = default;
};

struct Model {
  ModelConfig config;
  std::vector<Unit> distinct;  // every different unit once
  std::vector<int> order;      // unit at each position, an index into `distinct`

  int num_units() const { return static_cast<int>(order.size()); }
  // REQUIRES: a unit of the model, or a segment of one (base/segment.h).
  const Unit& unit(int segment) const { return distinct[order[unit_of(segment)]]; }
  int unit_of(int segment) const { return lockstep::unit_of(segment, num_units()); }
  bool is_experts(int segment) const { return lockstep::is_experts(segment, num_units()); }
  // All, unit by unit; behind a unit its experts.
  std::vector<int> segments() const;
  // Of the unit's kind, among those of flat_layouts().
  std::size_t layout_of(int segment) const {
    const std::size_t own = static_cast<std::size_t>(order[unit_of(segment)]);
    return own + (is_experts(segment) ? distinct.size() : 0);
  }
  // The number that replaces "{i}" in the names of that unit's parameters.
  static int layer(int position) { return position - 1; }
};

// How many parameters, and how they divide: total = tensor + expert + replicated. Tied copies are
// not counted; the router's selection bias is.
struct ParamCount {
  std::int64_t total = 0;
  std::int64_t active = 0;      // what one token meets: top_k in place of all experts
  std::int64_t tensor = 0;      // divided by tp
  std::int64_t expert = 0;      // divided by ep x etp
  std::int64_t replicated = 0;  // norms, routers, positions

  ParamCount& operator+=(const ParamCount& other);
  friend ParamCount operator*(const ParamCount& one, std::int64_t times);
  bool operator==(const ParamCount&) const = default;
};

// Refuses a config that has problems(), with the first of them.
Result<Model> describe(const ModelConfig& config);

ParamCount count(const Unit& unit);
ParamCount count(const Model& model);

// `pattern` with every "{i}" replaced by `layer`.
std::string name_at(const std::string& pattern, std::int64_t layer);

std::string_view to_text(UnitKind kind);  // "embed", "block", "mtp", "head"
std::string_view to_text(Role role);      // "attention"

}  // namespace lockstep::model
