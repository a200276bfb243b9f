// How a step is divided over the ranks and in time, and its short name, one word per setting:
//
//   pp2 dp2x2 zero3 1f1b m4 mb recompute=selective
//
// Plain data; any thread may read it. A Layout by itself promises nothing: legal.h says which ones
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/mesh/axis.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/context.h"
#include "lockstep/model/drop.h"
#include "lockstep/program/program.h"
#include "lockstep/spec/batch_ramp.h"

namespace lockstep::spec {

using Period = program::Period;

// What the blocks of each stage drop and recompute.
struct Recompute {
  model::Drop drop = {};
  // With drop.block: of how many blocks of each stage, its first ones, in the order of the stages;
  // all others follow drop.rest(). Empty: of every block, and no row is named.
  std::vector<int> blocks = {};
  bool operator==(const Recompute&) const = default;
};

// `rest`, and so many of each stage's blocks whole. That is `rest` where they are none, and
// kWholeBlock where they are all and `rest` names no row. REQUIRES: as many counts as stages.
Recompute with_blocks(const model::Drop& rest, const std::vector<int>& layers,
                      std::vector<int> blocks);

// "none", "selective", "full", the rows joined by "+", or "full:3x2+1+0": three blocks on each of
// two stages, then one and none; what the others do may stand before it: "selective+full:3x2+1+0".
// REQUIRES: nothing that no run of ours does.
std::string to_text(const model::Drop& drop);
std::string to_text(const Recompute& recompute);
Result<Recompute> parse_recompute(std::string_view text);

struct Layout {
  mesh::Degrees degrees = {};
  mesh::Order order = {};
  model::CpMethod context = model::CpMethod::kRing;  // how cp ranks meet; nothing when cp is 1
  bool sp = true;  // sequence parallelism on the tensor axis; nothing when tp is 1
  int zero = 1;    // what the data axis shards: 0 nothing, 1 optimizer, 2 gradients, 3 parameters
  std::string schedule = "1f1b";  // one of schedule_names()
  int chunks = 1;                 // stages per pipeline coordinate
  Period reduce = Period::kStep;  // after how much backward work gradients are reduced
  Recompute recompute = {};
  // ZeRO-3: gathered units kept, the one in use included, and how many computations early units
  // are gathered; absent: 1 and 1.
  std::optional<int> resident = {};
  std::optional<int> prefetch = {};
  // Microbatches a data-parallel rank takes in a step; absent: what the batch makes.
  std::optional<std::int64_t> microbatches = {};
  std::vector<int> layers = {};  // of each stage, in their order; empty: spec::stage_layers
  bool operator==(const Layout&) const = default;
};

// "9x2+8+6": 9 layers on each of two stages, then 8 and 6.
std::string layers_text(const std::vector<int>& layers);
Result<std::vector<int>> parse_layers(std::string_view text);

struct Batch {
  std::int64_t seq = 0;           // tokens in one sequence
  std::int64_t global_batch = 0;  // sequences in one step, over all ranks
  std::int64_t microbatch = 1;    // sequences a rank takes through the pipeline at once
  BatchRamp ramp = {};            // how early steps are smaller
  bool operator==(const Batch&) const = default;
};

// Names of the rows of pipeline::catalog(), the default first.
const std::vector<std::string>& schedule_names();
// Of model::kCpMethods.
const std::vector<std::string>& context_names();

// Step for stages 0 and 1; microbatch for 2 and 3, which save no gradient memory otherwise.
Period default_reduce(int zero);
std::string_view name_of(Period reduce);  // "step", "microbatch"
std::optional<Period> parse_reduce(std::string_view text);

// A rank's share of a step: global_batch / dp / microbatch. REQUIRES: a batch that the layout cuts
// evenly.
std::int64_t num_microbatches(const Layout& layout, const Batch& batch);

// `batch` with the size of a microbatch that makes layout.microbatches of them; unchanged when that
// is absent. REQUIRES: dp x microbatches divides global_batch.
Batch cut(const Batch& batch, const Layout& layout);

// The short name. Always dp (as replicas x shards when dp_shard is given), the ZeRO stage and the
// reduction ("step" or "mb"); any other setting when it is not the default, the schedule also when
// there is a pipeline, the way of context parallelism also when there is some.
std::string to_text(const Layout& layout);

// The inverse: parse_layout(to_text(x)) == x for every legal x. Words may come in any order; what
// is left out has its default, the reduction that of its stage. Refuses unknown, repeated and
// out-of-range words, with the nearest legal ones.
Result<Layout> parse_layout(std::string_view text);

}  // namespace lockstep::spec
