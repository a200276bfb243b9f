#include "lockstep/cost/analytic/peak_memory.h"

#include <algorithm>
#include <cmath>

#include "lockstep/cost/analytic/stage_split.h"

namespace lockstep::cost {
namespace {

// Of an activation.
double element_bytes(const PriceRequest& r) { return r.precision == Precision::kFp32 ? 4 : 2; }

// Of what a product reads again in the backward pass; of what an activation reads, too.
double read_bytes_of(const PriceRequest& r) {
  return r.stack.narrow_kept && r.precision == Precision::kFp8 ? 1 : element_bytes(r);
}

// Bytes per token of one layer in classes that layouts treat differently.
struct KeptTensors {
  double path = 0;            // between tensor-parallel parts: inputs and outputs of norms
  double normed = 0;          // of which outputs of norms
  double inner = 0;           // divided by tp
  double scores = 0;          // of unfused attention, divided by tp
  double product = 0;         // of the MLP's activation, divided by tp
  double routed = 0;          // of dispatched tokens, divided by tp / etp
  double routed_product = 0;  // of which products of the experts' activations
};

// Statistics of norms and of attention are f32, masks of dropout one byte, all else as wide as
// products are.
KeptTensors kept_tensors(const PriceRequest& r, bool expert_layer) {
  const ModelShape& s = *r.shape;
  const double h = s.hidden, wide = element_bytes(r), read = read_bytes_of(r);
  KeptTensors kept;
  // What norms read, and what they make in front of products.
  kept.path = wide * h * (2 + s.norms) - (wide - read) * h * s.input_norms + 4 * s.norms +
              (s.wide_qk_norm ? 8 : 0);
  kept.normed = read * h * s.input_norms;
  if (r.stack.dropout) kept.path += 2 * h;
  if (!r.stack.fused_norms) kept.path += 6 * h * s.norms;  // f32 copies before and after scaling
  kept.inner = wide * (s.q() + 2 * r.keys() + s.values()) + (r.stack.flash ? 4 * s.heads : 0);
  if (s.kv_rank > 0) {
    kept.path += wide * (2 * s.q_rank + 2 * s.kv_rank + s.rope_dim);
    kept.inner = wide * (s.q() + s.heads * s.qk_dim + 2 * s.values()) + 4 * s.heads;
  }
  if (!r.stack.flash) kept.scores = (r.stack.dropout ? 2 * wide + 1 : wide) * s.heads * r.seq;
  const double width = expert_layer ? s.shared_ffn : s.ffn;
  const double firsts = expert_layer || s.mlp_matrices > 2 ? 2 : 1;
  kept.inner += read * firsts * width;
  // An activation that is a kernel of its own keeps its output for the product after it.
  if (!r.stack.fused_passes && s.mlp_matrices > 2) kept.inner += wide * width;
  kept.product = read * width;
  if (expert_layer) {
    kept.path += 4 * s.experts;
    kept.routed_product = s.top_k * read * s.expert_ffn / r.etp * r.imbalance;
    const double outputs = r.stack.weighted_products ? 0 : wide * h;
    kept.routed = s.top_k * (read * (h + 3 * s.expert_ffn / r.etp) + outputs + 4) * r.imbalance;
  }
  return kept;
}

// torchtitan's policy keeps every second matrix product in the order a block computes them (query,
// value, gate, and with a gate the last) and attention's output, and recomputes the others
// (torchtitan/distributed/activation_checkpoint.py).
double half_bytes_per_token(const PriceRequest& r, bool expert_layer) {
  const ModelShape& s = *r.shape;
  const double wide = element_bytes(r), path = r.sp ? r.tp : 1;
  const double width = expert_layer ? s.top_k * s.expert_ffn + s.shared_ffn : s.ffn;
  const double outputs = s.mlp_matrices > 2 ? 2 * s.hidden : s.hidden;
  return wide * outputs / path +
         (wide * (s.q() + r.keys() + s.values() + width) + 4 * s.heads) / r.tp;
}

}  // namespace

double padded_vocab(const PriceRequest& r) {
  const double multiple = 128.0 * r.tp;
  return std::ceil(r.shape->vocab / multiple) * multiple;
}

namespace {
double whole_bytes(const PriceRequest& r, const KeptTensors& kept) {
  const double gathered = r.sp && r.stack.keeps_gathered ? kept.normed * (1 - 1.0 / r.tp) : 0;
  return kept.path / (r.sp ? r.tp : 1) + gathered +
         (kept.inner + kept.product + kept.scores) / r.tp + kept.routed * r.etp / r.tp;
}

// Of rows that one elementwise pass rebuilds: outputs of norms and products of activations.
double cheap_bytes(const PriceRequest& r, const KeptTensors& kept, const model::Drop& drop) {
  const double norms = (drop.attn_normed ? 0.5 : 0) + (drop.mlp_normed ? 0.5 : 0);
  const double products = (kept.product + kept.routed_product * r.etp) / r.tp;
  return norms * kept.normed / (r.sp ? r.tp : 1) + (drop.product ? products : 0);
}
// Of rows that a product with weights, or attention, rebuilds.
double costly_bytes(const PriceRequest& r, const model::Drop& drop, bool expert_layer) {
  const ModelShape& s = *r.shape;
  const double firsts = expert_layer || s.mlp_matrices > 2 ? 2 : 1;
  const double inner = (drop.qkv ? r.qkv() : 0) + (drop.attn_out ? s.values() : 0);
  const double wide = drop.gate_up ? firsts * (expert_layer ? s.shared_ffn : s.ffn) : 0;
  const double statistics = drop.attn_out && r.stack.flash ? 4 * s.heads : 0;
  const double routed = drop.gate_up && expert_layer ? 2 * s.top_k * s.expert_ffn * r.imbalance : 0;
  return (element_bytes(r) * inner + read_bytes_of(r) * (wide + routed) + statistics) / r.tp +
         (drop.middle ? element_bytes(r) * s.hidden / (r.sp ? r.tp : 1) : 0);
}
}  // namespace

double dropped_share(const PriceRequest& r, bool expert_layer) {
  if (r.drop.rest() == model::kKeepAll) return 0;
  const KeptTensors kept = kept_tensors(r, expert_layer);
  return cheap_bytes(r, kept, r.drop) / cheap_bytes(r, kept, model::kSelective);
}

double kept_bytes_per_token(const PriceRequest& r, const model::Drop& drop, bool expert_layer) {
  if (drop.block) return element_bytes(r) * r.shape->hidden / (r.sp ? r.tp : 1);
  if (drop.alternate_products) return half_bytes_per_token(r, expert_layer);
  const KeptTensors kept = kept_tensors(r, expert_layer);
  const double scores = drop.scores || drop.attention ? kept.scores : 0;
  const double outputs = drop.attention ? element_bytes(r) * r.shape->values() : 0;
  return whole_bytes(r, kept) - cheap_bytes(r, kept, drop) - costly_bytes(r, drop, expert_layer) -
         (scores + outputs) / r.tp;
}

PartParams stage_params(const PriceRequest& r, const StageSplit& split, int stage) {
  const ModelShape& s = *r.shape;
  const double experts = expert_layers_on(r, split, stage);
  PartParams sum = plain_layer_params(s, r.tp) * (layers_on(r, split, stage) - experts);
  if (experts > 0) sum += expert_layer_params(s, r.tp) * experts;
  const double vocabulary = padded_vocab(r) * s.hidden;
  const bool is_first = stage <= 0, has_head = holds_head(r, stage);
  if (is_first) sum.tensor += vocabulary, sum.replicated += s.learned_positions * s.hidden;
  if (has_head && !(s.tied && is_first)) sum.tensor += vocabulary;
  if (has_head) sum.replicated += head_params(s).replicated;
  return sum;
}

namespace {

void add_states(const PriceRequest& r, const StageSplit& split, int stage, Memory& memory) {
  const RankParams own = on_rank(r, stage_params(r, split, stage));
  const int n = r.shard_group(), edp = r.expert_copies();
  const auto share = [&](int from, double bytes) {
    return bytes * (own.dense / (r.zero >= from ? n : 1) + own.expert / (r.zero >= from ? edp : 1));
  };
  memory.weights = share(3, r.stack.weight_bytes);
  // A pipeline adds up gradients of microbatches, so stage 2 keeps them whole unless each is
  // reduced.
  const bool whole_grads = r.zero == 2 && r.microbatches() > 1 && !r.stack.reduce_each_microbatch;
  memory.grads = share(whole_grads ? 4 : 2, r.stack.grad_bytes);
  // With no more microbatches than ranks each chunk has seen all of them before the next begins.
  if (r.stack.reduce_each_chunk && whole_grads && r.microbatches() <= r.pp)
    memory.grads = (memory.grads + (r.chunks - 1) * share(2, r.stack.grad_bytes)) / r.chunks;
  if (r.dp > 1) memory.grads += r.stack.ddp_buckets * (own.dense + own.expert);
  memory.optimizer = share(1, r.stack.optimizer_bytes);
}

double layer_params_on_rank(const PriceRequest& r) {
  const ModelShape& s = *r.shape;
  const RankParams one =
      on_rank(r, s.has_experts() ? expert_layer_params(s, r.tp) : plain_layer_params(s, r.tp));
  return one.dense + one.expert;
}

// What ZeRO-3 gathers, in 16 bits. In the backward pass of a block: the block and the one before
// it, the whole gradient and its f32 copy on the way into the reduction. At the loss: the head, its
// gradient and a block.
double gathered(const PriceRequest& r, PeakEvent event) {
  if (r.zero < 3 || r.shard_group() <= 1) return 0;
  const double layer = layer_params_on_rank(r);
  if (event != PeakEvent::kLoss) return 10 * layer;
  return 2 * layer + 4 * padded_vocab(r) * r.shape->hidden / r.tp;
}

// What comes and goes leaves holes in the allocator's reserve: few where tensors are kept (fitted
// on sail-vocab-parallel), more where every block is recomputed among what is kept
// (bigscience-bloom); between them where this share of blocks is.
double holes_share(double recomputed) { return 0.05 + 0.2 * recomputed; }

// Keys and values of all ranks of a sequence where they are gathered, and one tensor in exchange
// for another where heads move. A ring's two blocks are as small as the step's other buffers.
double cp_buffer_bytes(const PriceRequest& r) {
  const ModelShape& s = *r.shape;
  if (r.cp <= 1 || r.context == model::CpMethod::kRing) return 0;
  const double tokens = element_bytes(r) * r.tokens() / r.tp;
  return tokens * (r.context == model::CpMethod::kGather ? 2 * r.keys() * r.cp : s.q());
}

// While unfused attention runs backwards: gradients of its probabilities, which a fused softmax
// turns into those of its scores in place, and a mask's and the softmax's own where each is a
// kernel.
double score_gradients(const PriceRequest& r) {
  if (r.stack.flash) return 0;
  const double one = element_bytes(r) * r.tokens() * r.shape->heads * r.seq / r.tp;
  return (r.stack.fused_softmax ? 1 : 2) * one;
}

// Bytes of a logit at the worst moment. PyTorch's loss holds the log-softmax, the gradient of the
// loss and its own, in f32, while the caller still has the logits; Megatron's holds as many f32
// tensors.
double logit_bytes(const PriceRequest& r) {
  if (r.stack.loss == Loss::kFused) return 2 * element_bytes(r);
  if (r.stack.loss == Loss::kInPlace) return 8;  // f32 logits, and their softmax
  // In f32 once more where ranks share the vocabulary: gathered, or by PyTorch's loss_parallel(),
  // which adds the softmax to the gradient out of place (bench/backtest/README.md).
  return 12 + element_bytes(r) + (r.stack.loss == Loss::kTorch && r.tp > 1 ? 4 : 0);
}

// What PyTorch's pipelines hold for all microbatches of a step, those in flight and `columns` of
// the logits of one aside: the first block's input is in its own buffer. REQUIRES: pp > 1.
double pipeline_buffers(const PriceRequest& r, int stage, double columns) {
  const double m = static_cast<double>(r.microbatches());
  const double one = element_bytes(r) * r.tokens() * r.shape->hidden / (r.sp ? r.tp : 1);
  const double inputs = r.chunks - (stage == 0 ? 1 : 0);
  const double outputs = r.chunks - (holds_head(r, stage) ? 1 : 0);
  double bytes = one * (inputs * std::max(0.0, m - in_flight(r, stage)) + outputs * m);
  if (r.stack.holds_outputs)
    bytes += one * outputs * m +
             (holds_head(r, stage) ? element_bytes(r) * r.tokens() * columns * (m - 1) : 0);
  return bytes;
}

}  // namespace

Memory stage_memory(const PriceRequest& r, int stage) {
  return stage_memory(r, split_layers(r), stage);
}

Memory stage_memory(const PriceRequest& r, const StageSplit& split, int stage) {
  const ModelShape& s = *r.shape;
  Memory memory;
  memory.stage = stage;
  memory.is_host = r.cluster->device.is_host;
  add_states(r, split, stage, memory);
  const double experts = expert_layers_on(r, split, stage);
  const double plain = layers_on(r, split, stage) - experts;
  const double tokens = r.tokens();
  const double layers = plain + experts, recomputed = r.recomputed_of(layers);
  const model::Drop rest = r.drop.rest();
  const auto kept_by = [&](const model::Drop& drop) {
    return (plain > 0 ? plain / layers * kept_bytes_per_token(r, drop, false) : 0) +
           (experts > 0 ? experts / layers * kept_bytes_per_token(r, drop, true) : 0);
  };
  const double others = recomputed < layers ? (layers - recomputed) * kept_by(rest) : 0;
  memory.activations = in_flight(r, stage) * tokens * (recomputed * kept_by(r.drop) + others);
  // A block that is recomputed holds what others keep while its backward pass runs, its input being
  // there already; by then those after it have let go of what they kept of this microbatch.
  double again = 0;
  const auto one = [&](const model::Drop& drop) {
    return kept_bytes_per_token(r, drop, experts > 0);
  };
  if (r.drop.alternate_products) again = tokens * one(model::kKeepAll);
  if (r.drop.block) again = tokens * std::max(0.0, one(rest) - one(r.drop) - others);
  const bool has_head = holds_head(r, stage);
  const double vocabulary = padded_vocab(r);
  if (r.stack.weight_grad_scratch) {
    if (!s.has_experts()) memory.transients += 2 * plain_layer_params(s, r.tp).tensor / r.tp;
    if (has_head) memory.transients += 2 * vocabulary * s.hidden / r.tp;
  }
  const double width = experts > 0 ? std::max(s.shared_ffn, s.top_k * s.expert_ffn) : s.ffn;
  const double wide = element_bytes(r);
  const double block = ((s.mlp_matrices > 2 ? 3 : 2) * width / r.tp + 2 * s.hidden) * wide * tokens;
  const double columns = vocabulary / (r.stack.whole_logits ? 1 : r.tp);
  const double logits = has_head ? tokens * (columns * logit_bytes(r) + wide * s.hidden) : 0;
  const double at_loss = logits + gathered(r, PeakEvent::kLoss);
  const double in_block = std::max(block, score_gradients(r)) + again +
                          gathered(r, PeakEvent::kBlockBackward) + cp_buffer_bytes(r);
  if (has_head && at_loss > in_block) {
    memory.logits = logits;
    memory.transients += at_loss - logits;
    memory.event = PeakEvent::kLoss;
  } else {
    memory.transients += in_block;
    memory.event = PeakEvent::kBlockBackward;
  }
  memory.transients += r.stack.bucket_bytes;
  if (r.stack.torch_pipeline && r.pp > 1) memory.transients += pipeline_buffers(r, stage, columns);
  if (!memory.is_host)
    memory.holes = holes_share(r.drop.block && !r.stack.expandable_segments
                                   ? recomputed / std::max(1.0, layers)
                                   : 0) *
                   (memory.activations + memory.logits + memory.transients);
  return memory;
}

std::optional<int> least_recomputed(const PriceRequest& request, const StageSplit& split,
                                    int stage) {
  PriceRequest r = request;
  r.set_recomputed(0);
  const double room = room_bytes(r);
  const auto bytes = [&] { return device_bytes(stage_memory(r, split, stage)); };
  const double none = bytes();
  if (none <= room) return 0;
  const int layers = static_cast<int>(layers_on(r, split, stage));
  r.drop.block = true;
  if (layers > 1 && r.stack.recompute_count != RecomputeCount::kAllOrNone) {
    // Bytes fall by as much with every block but the last, for which no other lets go of any.
    r.recomputed = 1;
    const double each = none - bytes();
    constexpr double kRounding = 1e-9;
    const double guess = std::ceil((none - room) / each - kRounding);
    r.recomputed = static_cast<int>(std::clamp<double>(guess, 1, layers));
    for (; r.recomputed < layers; ++r.recomputed)
      if (bytes() <= room) return r.recomputed;
  }
  r.recomputed = layers;
  return layers > 0 && bytes() <= room ? std::optional(layers) : std::nullopt;
}

std::optional<int> least_recomputed(const PriceRequest& r) {
  const StageSplit split = split_layers(r);
  std::optional<int> most = least_recomputed(r, split, 0);
  for (const int stage : {1, r.pp - 1}) {
    if (!most || stage < 1 || stage > r.pp - 1) continue;
    const std::optional<int> other = least_recomputed(r, split, stage);
    most = other ? std::max(most, other) : other;
  }
  if (!most || *most == 0 || r.stack.recompute_count == RecomputeCount::kEachStage) return most;
  if (r.stack.recompute_count == RecomputeCount::kAllOrNone) return most_layers(r);
  return std::min(std::ceil(*most / r.chunks) * r.chunks, most_layers(r));
}

Memory price_memory(const PriceRequest& r) {
  const StageSplit split = split_layers(r);
  Memory worst = stage_memory(r, split, 0);
  for (const int stage : {1, r.pp - 1}) {
    if (stage < 1 || stage > r.pp - 1) continue;
    const Memory other = stage_memory(r, split, stage);
    if (device_bytes(other) > device_bytes(worst)) worst = other;
  }
  return worst;
}

std::string_view to_text(PeakEvent event) {
  return event == PeakEvent::kLoss            ? "loss point"
         : event == PeakEvent::kBlockBackward ? "backward pass of a block"
                                              : "optimizer";
}

namespace {
double varying(const Memory& memory) {
  return memory.activations + memory.logits + memory.transients;
}
}  // namespace

// Shown: fitted on bigscience-bloom (bench/fit_memory.cc). Needed: fitted on out-of-memory
// verdicts; of the limits that are as good as the best, one that 145B without recomputation does
// not meet (bench/backtest/README.md).
double read_bytes(const Memory& memory, Reading reading, double has) {
  if (reading == Reading::kAllocated) return memory.allocated();
  const double beside = memory.is_host ? 0 : 5.5e9, reserved = memory.allocated() + memory.holes;
  return reading == Reading::kReserved ? std::min(reserved, has - beside)
                                       : std::min(reserved + beside, has);
}
double device_bytes(const Memory& memory) {
  return memory.allocated() + (memory.is_host ? 0 : 0.3 * varying(memory) + 3.3e9);
}
Memory scaled(const Memory& memory, double factor) {
  Memory made = memory, none;
  none.is_host = memory.is_host;
  const double all = device_bytes(memory), fixed = device_bytes(none);
  const double by = std::max(0.0, (factor * all - fixed) / (all - fixed));
  for (double* part : {&made.weights, &made.grads, &made.optimizer, &made.activations, &made.logits,
                       &made.transients, &made.holes})
    *part *= by;
  return made;
}
double capacity_bytes(const cluster::DeviceType& device) { return device.memory.value; }
double room_bytes(const PriceRequest& r) {
  return capacity_bytes(r.cluster->device) * (1 - r.headroom);
}

}  // namespace lockstep::cost
