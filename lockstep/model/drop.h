// What a block drops after its forward pass and recomputes for its backward pass: the one
// description that runs, programs, memory and prices read. Which blocks drop more than the others
// is a layout's (spec::Recompute). Plain data.
#pragma once

#include <array>

namespace lockstep::model {

struct Drop {
  // Values of a block's list (parts/block.cc), each rebuilt by one elementwise pass.
  bool attn_normed = false;
  bool mlp_normed = false;
  bool product = false;  // of the MLP's activation
  bool block = false;  // all but the block's input ("full"); with it, the rows say what is dropped
                       // once more while the block is recomputed
  // What other software recomputes. It is priced, no run of ours does it.
  bool scores = false;              // of unfused attention, with their softmax ("selective")
  bool attention = false;           // all of attention and every elementwise pass: what is left are
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
inline constexpr Drop kCheap = {.attn_normed = true, .mlp_normed = true, .product = true};
inline constexpr Drop kWholeBlock = {.block = true};

struct DropRow {
  const char* name;    // as people write it: "attn_norm.output"
  const char* tensor;  // in the block's list: "attn_normed"
  bool Drop::* is_dropped;
};
// The rows of kCheap.
inline constexpr std::array kDropRows = {
    DropRow{"attn_norm.output", "attn_normed", &Drop::attn_normed},
    DropRow{"mlp_norm.output", "mlp_normed", &Drop::mlp_normed},
    DropRow{"mlp.product", "product", &Drop::product}};

}  // namespace lockstep::model
