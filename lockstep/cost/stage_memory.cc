#include "lockstep/cost/stage_memory.h"

#include <algorithm>

#include "lockstep/cost/peak_memory.h"
#include "lockstep/cost/stage_split.h"

namespace lockstep::cost {
namespace {

void add_states(const PriceRequest& r, double stage, Memory& memory) {
  const PartParams params = stage_params(r, stage);
  const double dense = params.tensor / r.tp + params.replicated;
  const double expert = params.expert / (r.ep * r.etp);
  const double n = r.shard_group();
  const double edp = std::max(1.0, r.tp * r.cp * r.dp / (r.ep * r.etp));
  const auto share = [&](int from, double bytes) {
    return bytes * (dense / (r.zero >= from ? n : 1) + expert / (r.zero >= from ? edp : 1));
  };
  memory.weights = share(3, r.stack.weight_bytes);
  // A pipeline adds up gradients of microbatches, so stage 2 keeps them whole unless each is reduced.
  const bool whole_grads = r.zero == 2 && r.microbatches() > 1 && !r.stack.reduce_each_microbatch;
  memory.grads = share(whole_grads ? 4 : 2, r.stack.grad_bytes);
  memory.optimizer = share(1, r.stack.optimizer_bytes);
}

double layer_params_on_rank(const PriceRequest& r) {
  const ModelShape& s = *r.shape;
  const PartParams one = s.has_experts() ? expert_layer_params(s) : plain_layer_params(s);
  return one.tensor / r.tp + one.replicated + one.expert / (r.ep * r.etp);
}

// Gathered units and one unit of whole gradients of ZeRO-3, in 16 bits.
double gathered(const PriceRequest& r) {
  if (r.zero < 3 || r.shard_group() <= 1) return 0;
  const double vocabulary = padded_vocab(r) * r.shape->hidden / r.tp;
  return 2 * (2 * layer_params_on_rank(r) + layer_params_on_rank(r) + vocabulary);
}

}  // namespace

Memory stage_memory(const PriceRequest& r, double stage) {
  const ModelShape& s = *r.shape;
  const StageSplit split = split_layers(r);
  Memory memory;
  memory.stage = static_cast<int>(stage);
  add_states(r, stage, memory);
  const double experts = expert_layers_on(r, split, stage);
  const double plain = layers_on(r, split, stage) - experts;
  const double tokens = r.tokens();
  memory.activations = in_flight(r, stage) * tokens *
                       (plain * kept_bytes_per_token(r, false) +
                        (experts > 0 ? experts * kept_bytes_per_token(r, true) : 0));
  if (r.keep == Keep::kInput) memory.transients += tokens * whole_bytes_per_token(r, experts > 0);
  memory.transients += gathered(r);
  const bool is_last = stage >= r.pp - 1;
  const double vocabulary = padded_vocab(r);
  if (r.stack.weight_grad_scratch) {
    if (!s.has_experts()) memory.transients += 2 * plain_layer_params(s).tensor / r.tp;
    if (is_last) memory.transients += 2 * vocabulary * s.hidden / r.tp;
  }
  const double width = experts > 0 ? std::max(s.shared_ffn, s.top_k * s.expert_ffn) : s.ffn;
  const double mlp = ((s.mlp_matrices > 2 ? 6 : 4) * width / r.tp + 4 * s.hidden) * tokens;
  // Logits and their gradient; an unfused loss adds f32 copies of logits, softmax and gradient.
  const double columns = vocabulary / (r.stack.whole_logits ? 1 : r.tp);
  const double logits =
      is_last ? tokens * columns * (r.stack.fused_loss ? 4 : 18) + 2 * s.hidden * tokens : 0;
  if (logits > mlp) {
    memory.logits = logits;
    memory.event = PeakEvent::kLoss;
  } else {
    memory.transients += mlp;
    memory.event = PeakEvent::kBlockBackward;
  }
  return memory;
}

}  // namespace lockstep::cost
