// The sizes of a model that its price depends on, as plain numbers: what a planner can afford to
// read a hundred thousand times, and what a published table prints. model::Model remains the
// description; a test holds the parameter counts of the two to each other for every model of the
// catalogue.
//
// Symbols follow docs/vocabulary.md: h hidden, q and k the widths of all query and all key heads, f
// of an MLP. Sizes count elements; a zero means "this model has none".
#pragma once

#include <cstdint>

#include "lockstep/model/model_config.h"

namespace lockstep::cost {

struct ModelShape {
  int layers = 0;
  double hidden = 0;
  double heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;  // dims of one head
  double ffn = 0, vocab = 0;
  double mlp_matrices = 3;       // 3 with a gate, 2 without
  double learned_positions = 0;  // rows of a table of positions; 0: rotary
  bool tied = false;
  bool layer_norm = false;  // gain and bias
  bool biases = false;      // on every linear
  double norms = 2;         // of a layer, each over h
  double input_norms = 2;   // of which in front of attention or MLP, whose products keep its output
  bool plain_norms = false;  // without parameters
  bool wide_qk_norm = false;
  double window = 0, window_every = 1;
  // Experts.
  double experts = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0;
  double dense_layers = 0;  // leading layers with a plain MLP
  double routed_nodes = 0;  // nodes a token is sent to at most (DeepSeek's limit); 0: any
  double moe_every = 1;     // 2: every second layer has experts
  // Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1); kv_rank 0: none.
  double q_rank = 0, kv_rank = 0, rope_dim = 0;

  double q() const { return heads * qk_dim; }
  double k() const { return kv_heads * qk_dim; }
  double values() const { return heads * v_dim; }
  bool has_experts() const { return experts > 0; }
  // Products end in the residual, not in a norm, which keeps them.
  bool sums_into_residual() const { return norms == input_norms; }
  // Layers with experts, and without.
  double expert_layers() const;
  double plain_layers() const { return layers - expert_layers(); }
};

ModelShape shape_of(const model::ModelConfig& config);

// Parameters of one part of a model by who shares them: tp, ep x etp, or nobody.
struct PartParams {
  double tensor = 0, replicated = 0, expert = 0;
  double total() const { return tensor + replicated + expert; }
  PartParams& operator+=(const PartParams& other);
  friend PartParams operator*(PartParams one, double times);
};

// Of attention and MLP, or experts; with a head of keys on each of `tp` ranks that outnumber them.
PartParams plain_layer_params(const ModelShape& shape, double tp = 1);
PartParams expert_layer_params(const ModelShape& shape, double tp = 1);
PartParams embedding_params(const ModelShape& shape);
PartParams head_params(const ModelShape& shape);  // a tied projection included: its stage holds it

// Forward FLOPs of one token, a multiplication and an addition counting as two (model/flops.h).
struct ForwardFlops {
  double matmul = 0, attention_causal = 0, attention_full = 0;
};
ForwardFlops forward_flops(const ModelShape& shape, double seq);

// Keys that a query meets on average under a causal mask, over global and local layers.
double mean_keys(const ModelShape& shape, double seq);

}  // namespace lockstep::cost
