// Every layout that verify can try on some ranks, and small subsets of them that still meet every
// pair or triple of settings.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/model/model_config.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {

// Every legal layout on exactly `ranks` ranks for steps of batch.global_batch sequences of
// batch.seq tokens; each says its number of microbatches, so cut(batch, layout) is its batch, and
// batch.microbatch is not read. Varied, the first slowest, each in the order given:
//   tp          divisors of `ranks`, ascending
//   sp          with sequence parallelism, then without it, where tp is above 1
//   cp          divisors of the rest, ascending, each above 1 in every way of model::kCpMethods
//   pp          divisors of the rest, ascending; dp is what is left
//   dp_shard    all of dp, then its smaller divisors, descending, with ZeRO 1 to 3
//   zero        0, 1, 2, 3, also over a data group of one
//   m           1, 2, 4 microbatches, where the batch allows
//   schedule    schedule_names(), each with 1, 2 and 3 chunks if it takes them; on one
//               coordinate with 1
//   reduce      step, microbatch
//   recompute   none, selective, full, one block of every second stage where those are not all
//               (others selective)
// Left out are settings that can make no difference: a reduction per microbatch when there is one
// microbatch, and a schedule whose timetable equals that of an earlier one; and all layouts of
// v-min and dualpipe-v but the last. Everything else has its default. REQUIRES: ranks >= 1.
std::vector<Layout> layouts(const model::ModelConfig& model, std::int64_t ranks, const Batch& batch,
                            DType dtype = DType::kF32);

// What a layout of that list is made of.
struct Factor {
  std::string_view name;
  std::string (*value)(const Layout& layout);
};
// All of them; of ranks that share experts only where some do.
std::span<const Factor> factors(std::span<const Layout> all);

// A subset in which every combination of values of `strength` factors that occurs in `all` occurs
// again (a covering array, Cohen et al., "The AETG system", IEEE TSE 1997, over the layouts that
// exist). Greedy: the layout with the most new combinations next, the earlier of equals; so any
// beginning of the result covers much. Costs at most O(result x all x combinations of factors).
// `progress`, where given, gets the covered and all combinations, often. REQUIRES: 1 <= strength <=
// number of factors.
struct CoveringArray {
  std::vector<Layout> layouts;
  std::int64_t combinations = 0;
  // Of values that occur in `all`, though not together.
  std::int64_t infeasible = 0;
};
using CoveringProgress = std::function<void(std::int64_t covered, std::int64_t combinations)>;
CoveringArray covering_array(std::span<const Layout> all, int strength,
                             const CoveringProgress& progress = {});

}  // namespace lockstep::spec
