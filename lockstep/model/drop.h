// What a block drops after its forward pass and recomputes for its backward pass: the one
// description that runs, programs, memory and prices read. Which blocks drop more than the others
// is a layout's (spec::Recompute). Plain data.
#pragma once

#include <array>

namespace lockstep::model {

struct Drop {
  // Values of a block's list (parts/block.cc), in any combination. One elementwise pass rebuilds
  // each of these:
  bool attn_normed = false;
  bool mlp_normed = false;
  bool product = false;  // of the MLP's activation
  // a product with weights, or attention, each of these:
  bool qkv = false;
  bool attn_out = false;  // of attention, before its projection
  bool middle = false;    // the residual stream between attention and MLP
  bool gate_up = false;   // what the activation reads
  bool block = false;  // all but the block's input (`full`); with it, the rows say what is dropped
                       // once more while the block is recomputed
  // What other software recomputes. It is priced, no run of ours does it.
  bool scores = false;     // of unfused attention, with their softmax: Megatron-LM's default
  bool attention = false;  // all of attention and every elementwise pass: what is left are
                           // products with weights (a policy of JAX)
  bool alternate_products = false;  // every second matrix product and all elementwise passes
                                    // (torchtitan's "op")
  bool operator==(const Drop&) const = default;

  // Of a block beside those that drop all but their input.
  constexpr Drop rest() const {
    Drop rest = *this;
    rest.block = false;
    return rest;
  }
};
inline constexpr Drop kKeepAll = {};
inline constexpr Drop kSelective = {.attn_normed = true, .mlp_normed = true, .product = true};
inline constexpr Drop kWholeBlock = {.block = true};

struct DropRow {
  const char* name;    // as people write it: "attn_norm.output"
  const char* tensor;  // in the block's list: "attn_normed"
  bool Drop::* is_dropped;
};
// What a block keeps, but for its input and statistics of rows.
inline constexpr std::array kDropRows = {
    DropRow{"attn_norm.output", "attn_normed", &Drop::attn_normed},
    DropRow{"attn.qkv", "qkv", &Drop::qkv},
    DropRow{"attn.core", "attn_out", &Drop::attn_out},
    DropRow{"attn.residual", "middle", &Drop::middle},
    DropRow{"mlp_norm.output", "mlp_normed", &Drop::mlp_normed},
    DropRow{"mlp.gate_up", "gate_up", &Drop::gate_up},
    DropRow{"mlp.product", "product", &Drop::product}};

}  // namespace lockstep::model
