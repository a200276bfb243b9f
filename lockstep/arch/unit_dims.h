// Sizes of one rank's tensors of a unit, in elements; shared by unit_bytes.cc and pass_bytes.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/arch/unit_bytes.h"
#include "lockstep/base/check.h"

namespace lockstep::arch {

struct UnitDims {
  std::int64_t s, lse_s;           // bytes per element; of the softmax's log-sum-exp: f32 or wider
  std::int64_t tokens, path;       // of a microbatch; this rank's share of them between the parts
                                   // that tensor parallelism cuts
  std::int64_t h, q, k, f, heads;  // q, k, f, heads: this rank's share
  std::int64_t head_dim;

  UnitDims(const ModelConfig& c, const UnitSizes& sizes)
      : s(sizes.width()),
        lse_s(std::max<std::int64_t>(s, 4)),
        tokens(sizes.tokens()),
        path(sizes.sequence_parallel ? tokens / sizes.tp : tokens),
        h(c.hidden),
        q(c.heads / sizes.tp * c.head_dim),
        k(c.kv_heads / sizes.tp * c.head_dim),
        f(c.ffn / sizes.tp),
        heads(c.heads / sizes.tp),
        head_dim(c.head_dim) {
    LS_CHECK(c.heads % sizes.tp == 0 && c.kv_heads % sizes.tp == 0 && c.ffn % sizes.tp == 0 &&
                 (!sizes.sequence_parallel || tokens % sizes.tp == 0),
             "tensor degree ", sizes.tp, " does not divide ", c.name);
  }
};

}  // namespace lockstep::arch
