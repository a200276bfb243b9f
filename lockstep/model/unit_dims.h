// Sizes of one rank's tensors of a unit, in elements, and the traits that decide which there are;
// shared by unit_bytes.cc and the walks through passes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/base/check.h"
#include "lockstep/model/unit_bytes.h"

namespace lockstep::model {

// What a norm goes over: `per_token` rows of `columns` elements for each of `tokens`.
struct NormRows {
  std::int64_t tokens, per_token, columns;
  std::int64_t rows() const { return tokens * per_token; }
};

struct UnitDims {
  std::int64_t s, wide;       // bytes per element; of statistics and of parameters' gradients
  std::int64_t tokens, path;  // of a microbatch; this rank's share of them between the parts
                              // that tensor parallelism cuts
  std::int64_t h, q, k, f,
      g;  // g: columns of the MLP's first product; q, k, f, g: this rank's share
  std::int64_t heads, kv_heads;  // this rank's
  std::int64_t head_dim;
  bool layer_norm, rotary, head_norms, qkv_bias, linear_bias;

  bool is_narrow() const { return s < wide; }
  // Rows of `columns` elements that are copied into the wide type at once.
  std::int64_t wide_block(std::int64_t rows, std::int64_t columns) const {
    return std::min(rows, wide_rows(columns)) * columns * wide;
  }
  NormRows unit_rows() const { return {path, 1, h}; }
  NormRows head_rows(std::int64_t count) const { return {tokens, count, head_dim}; }

  UnitDims(const ModelConfig& c, const UnitSizes& sizes)
      : s(sizes.width()),
        wide(sizes.wide()),
        tokens(sizes.tokens()),
        path(sizes.sequence_parallel ? tokens / sizes.tp : tokens),
        h(c.hidden),
        q(c.heads / sizes.tp * c.head_dim),
        k(c.kv_heads / sizes.tp * c.head_dim),
        f(c.ffn / sizes.tp),
        g(activation(c) == Activation::kSwiGlu ? 2 * f : f),
        heads(c.heads / sizes.tp),
        kv_heads(c.kv_heads / sizes.tp),
        head_dim(c.head_dim),
        layer_norm(c.norm == NormKind::kLayerNorm),
        rotary(positions(c) == Positions::kRotary),
        head_norms(c.qk_norm == QkNorm::kPerHead),
        qkv_bias(c.qkv_bias),
        linear_bias(c.linear_bias) {
    LS_CHECK(c.heads % sizes.tp == 0 && c.kv_heads % sizes.tp == 0 && c.ffn % sizes.tp == 0 &&
                 (!sizes.sequence_parallel || tokens % sizes.tp == 0),
             "tensor degree ", sizes.tp, " does not divide ", c.name);
  }
};

}  // namespace lockstep::model
