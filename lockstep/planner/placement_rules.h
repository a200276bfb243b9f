// What those who place by rule would choose: tensor parallelism inside a node until the model fits; if a node is not
// enough, pipeline stages across nodes, or states sharded over them; the rest is data parallel (Narayanan et al.,
// arXiv 2104.04473, section 3; Rajbhandari et al., arXiv 1910.02054). Each answer is a few walks. Pure functions.
#pragma once

#include "lockstep/planner/explain.h"

namespace lockstep::planner {

// The smallest tp of a node that fits with everything sharded (ZeRO-3) and no pipeline. With stages instead:
// rule_of_thumb() of explain.h.
Alternative sharding_rule(const Question& question);

}  // namespace lockstep::planner
