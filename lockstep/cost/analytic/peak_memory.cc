#include "lockstep/cost/analytic/peak_memory.h"

#include <algorithm>
#include <cmath>

#include "lockstep/cost/analytic/stage_memory.h"
#include "lockstep/cost/analytic/stage_split.h"

namespace lockstep::cost {
namespace {

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

// Statistics of norms and of attention are f32, masks of dropout one byte, all else as wide as products are.
KeptTensors kept_tensors(const PriceRequest& r, bool expert_layer) {
  const ModelShape& s = *r.shape;
  const double h = s.hidden, wide = element_bytes(r);
  KeptTensors kept;
  kept.path = 4 * wide * h + 8;
  kept.normed = 2 * wide * h;
  if (r.stack.dropout) kept.path += 2 * h;
  if (!r.stack.fused_norms) kept.path += 12 * h;  // f32 copies before and after scaling, twice
  kept.inner = wide * (s.q() + 2 * s.k() + s.values()) + (r.stack.flash ? 4 * s.heads : 0);
  if (s.kv_rank > 0) {
    kept.path += wide * (2 * s.q_rank + 2 * s.kv_rank + s.rope_dim);
    kept.inner = wide * (s.q() + s.heads * s.qk_dim + 2 * s.values()) + 4 * s.heads;
  }
  if (!r.stack.flash) kept.scores = (r.stack.dropout ? 2 * wide + 1 : wide) * s.heads * r.seq;
  const double width = expert_layer ? s.shared_ffn : s.ffn;
  const double firsts = expert_layer || s.mlp_matrices > 2 ? 2 : 1;
  kept.inner += wide * firsts * width;
  // An activation that is a kernel of its own keeps its output for the product after it.
  if (!r.stack.fused_passes && s.mlp_matrices > 2) kept.inner += wide * width;
  kept.product = wide * width;
  if (expert_layer) {
    kept.path += 4 * s.experts;
    kept.routed_product = s.top_k * wide * s.expert_ffn / r.etp * r.imbalance;
    kept.routed = s.top_k * (wide * (2 * h + 3 * s.expert_ffn / r.etp) + 4) * r.imbalance;
  }
  return kept;
}

// torchtitan's policy keeps every second matrix product in the order a block computes them (query, value, gate, and
// with a gate the last) and attention's output, and makes the others again
// (torchtitan/distributed/activation_checkpoint.py).
double half_bytes_per_token(const PriceRequest& r, bool expert_layer) {
  const ModelShape& s = *r.shape;
  const double wide = element_bytes(r), path = r.sp ? r.tp : 1;
  const double width = expert_layer ? s.top_k * s.expert_ffn + s.shared_ffn : s.ffn;
  const double outputs = s.mlp_matrices > 2 ? 2 * s.hidden : s.hidden;
  return wide * outputs / path + (wide * (s.q() + s.k() + s.values() + width) + 4 * s.heads) / r.tp;
}

}  // namespace

double element_bytes(const PriceRequest& r) { return r.precision == Precision::kFp32 ? 4 : 2; }

double padded_vocab(const PriceRequest& r) {
  const double multiple = 128 * r.tp;
  return std::ceil(r.shape->vocab / multiple) * multiple;
}

double whole_bytes_per_token(const PriceRequest& r, bool expert_layer) {
  const KeptTensors kept = kept_tensors(r, expert_layer);
  return kept.path / (r.sp ? r.tp : 1) + (kept.inner + kept.product + kept.scores) / r.tp +
         kept.routed * r.etp / r.tp;
}

double kept_bytes_per_token(const PriceRequest& r, bool expert_layer) {
  return kept_bytes_per_token(r, r.keep, expert_layer);
}

double kept_bytes_per_token(const PriceRequest& r, Keep keep, bool expert_layer) {
  const double path = r.sp ? r.tp : 1;
  if (keep == Keep::kInput) return element_bytes(r) * r.shape->hidden / path;
  const KeptTensors kept = kept_tensors(r, expert_layer);
  switch (keep) {
    case Keep::kNoScores:
      return whole_bytes_per_token(r, expert_layer) - kept.scores / r.tp;
    case Keep::kCheap:
      return whole_bytes_per_token(r, expert_layer) - kept.normed / path -
             (kept.product + kept.scores) / r.tp - kept.routed_product * r.etp / r.tp;
    case Keep::kProducts:
      return whole_bytes_per_token(r, expert_layer) - kept.normed / path -
             (kept.product + kept.scores + element_bytes(r) * r.shape->values()) / r.tp;
    case Keep::kHalf:
      return half_bytes_per_token(r, expert_layer);
    case Keep::kInput:
    case Keep::kAll:
      break;
  }
  return whole_bytes_per_token(r, expert_layer);
}

PartParams stage_params(const PriceRequest& r, const StageSplit& split, double stage) {
  const ModelShape& s = *r.shape;
  const double experts = expert_layers_on(r, split, stage);
  PartParams sum = plain_layer_params(s) * (layers_on(r, split, stage) - experts);
  if (experts > 0) sum += expert_layer_params(s) * experts;
  const double vocabulary = padded_vocab(r) * s.hidden;
  const bool is_first = stage <= 0, has_head = holds_head(r, stage);
  if (is_first) sum.tensor += vocabulary, sum.replicated += s.learned_positions * s.hidden;
  if (has_head && !(s.tied && is_first)) sum.tensor += vocabulary;
  if (has_head) sum.replicated += head_params(s).replicated;
  return sum;
}

Memory price_memory(const PriceRequest& r) {
  Memory worst = stage_memory(r, 0);
  for (const double stage : {1.0, r.pp - 1}) {
    if (stage < 1 || stage > r.pp - 1) continue;
    const Memory other = stage_memory(r, stage);
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

// Shown: fitted on bigscience-bloom (bench/fit_memory.cc). Needed: fitted on out-of-memory verdicts; of the limits that
// are as good as the best, one that 145B without recomputation does not meet (bench/backtest/README.md).
double reserved_bytes(const Memory& memory) { return memory.allocated() + memory.holes; }
double shown_bytes(const Memory& memory) {
  return reserved_bytes(memory) + (memory.is_host ? 0 : 5.5e9);
}
double device_bytes(const Memory& memory) {
  return memory.allocated() + (memory.is_host ? 0 : 0.3 * varying(memory) + 3.3e9);
}
double capacity_bytes(const cluster::DeviceType& device) { return device.memory.value; }
double room_bytes(const PriceRequest& r) {
  return capacity_bytes(r.cluster->device) * (1 - r.headroom);
}

}  // namespace lockstep::cost
