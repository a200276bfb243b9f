// Why a layout was chosen: what its neighbours lose, what a better machine would buy, and what the
// usual rule would have said. Each answer is a walk of its own, a few milliseconds long. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/planner/finalists.h"

namespace lockstep::planner {

// What another question, or another choice, leads to.
struct Alternative {
  std::string change = {};             // "tp 4", "twice the network"
  std::optional<Finalist> found = {};  // absent: nothing fits, or nothing can be divided so
  double least_bytes = 0;  // of the smallest, when nothing fits; 0: nothing can be divided so
};

// With one degree halved or doubled, the best of everything else; then one policy changed and
// nothing else.
std::vector<Alternative> neighbours(const Question& question, const Finalist& chosen);

enum class Resource : std::uint8_t { kMemory, kNetwork, kScaleUp, kFlops, kBatch };
struct Change {
  Resource resource = Resource::kMemory;
  double factor = 1;
};

void change_cluster(cluster::Cluster& cluster, const Change& change);  // nothing for kBatch

// The best layout of the changed question. The one that was chosen without the change is among
// those to choose from, so that more of anything is never slower. REQUIRES: `chosen` answers the
// question.
Alternative what_if(const Question& question, const Change& change, const Finalist& chosen);

// "Tensor parallelism inside a node until the model fits, then pipeline stages across nodes, the
// rest is data parallel" (Narayanan et al., arXiv 2104.04473, section 3): the smallest tp, then the
// smallest pp, that fit without sharding more than the optimizer.
Alternative rule_of_thumb(const Question& question);

// The same with states sharded over nodes in place of stages (Rajbhandari et al., arXiv
// 1910.02054): the smallest tp of a node that fits with everything sharded (ZeRO-3) and no
// pipeline.
Alternative sharding_rule(const Question& question);

// Of a layout that does not fit: what its blocks could make again so that it does, the least.
std::optional<spec::Recompute> fitting_recompute(const Finalist& finalist);

// A rate of the device that is known only within its band, and at whose end another finalist wins.
struct Flip {
  cluster::Term term = cluster::Term::kGemm;
  double change = 0;       // relative: -0.1
  std::size_t winner = 0;  // of the finalists given
};
std::vector<Flip> flips(std::span<const Finalist> finalists);

// Terms of a step that differ most, largest first: "bubble +0.9 s, tp -0.31 s". At most two,
// none below half a percent of the first step.
std::string difference(const cost::StepTime& from, const cost::StepTime& to);

}  // namespace lockstep::planner
