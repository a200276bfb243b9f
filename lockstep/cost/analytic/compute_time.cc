#include "lockstep/cost/analytic/compute_time.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/divides.h"
#include "lockstep/cost/analytic/peak_memory.h"

namespace lockstep::cost {
namespace {

using cluster::Term;

struct Device {
  double peak, peak8, memory;  // FLOP/s, bytes/s
  const cluster::DeviceRates& rates;
  bool is_8bit;
  double sum_bytes;    // of a weight gradient on its way out of the product
  double added_bytes;  // and where a pass of its own adds it up: read twice, written once
  double cast_bytes;

  explicit Device(const PriceRequest& r)
      : peak(peak_of(r, r.precision == Precision::kFp32 ? Precision::kFp32 : Precision::kBf16)),
        peak8(peak_of(r, Precision::kFp8)),
        memory(r.cluster->device.memory_bytes_per_s.value),
        rates(*r.rates),
        is_8bit(r.precision == Precision::kFp8 && peak8 > 0),
        sum_bytes(r.stack.fused_sums ? 2 * r.stack.grad_bytes : 2),
        added_bytes(r.stack.fused_sums || r.microbatches() <= 1 ? 0 : 2 + 2 * r.stack.grad_bytes),
        cast_bytes(r.stack.cast_bytes) {}
  double stream(double bytes) const { return bytes / (memory * rates[Term::kStream]); }
};

struct Product {
  double m = 0, k = 0, n = 0, count = 1;
  bool grouped = false, is_16bit = false;
};

// Tensor cores read rows of 16 bytes. Sides that are no multiple of eight elements fall back to
// other kernels; how much slower was fitted on the bigscience-bloom rows with heads of 108 and 150.
constexpr double kMisaligned = 16;

bool is_aligned(const Product& p) { return divides(8, p.k) && divides(8, p.n); }

// Time of a product over its time without rounding: tiles run in waves of as many as there are
// processors (NVIDIA, "Matrix multiplication background", section 3). Smaller tiles round less and
// reuse less.
double wave_factor(const Product& p, double processors) {
  struct Tile {
    double m, n, rate;
  };
  double best = 1e30;
  for (const Tile& tile :
       {Tile{256, 128, 1.0}, Tile{128, 256, 1.0}, Tile{128, 128, 0.92}, Tile{64, 64, 0.7}}) {
    const double tiles = std::ceil(p.m / tile.m) * std::ceil(p.n / tile.n) * p.count;
    const double waves = std::ceil(tiles / processors);
    best = std::min(best, waves * processors * tile.m * tile.n / (p.m * p.n * p.count * tile.rate));
  }
  return best;
}

void add_product(const Device& device, const Product& p, ComputeTime& time) {
  const bool narrow = device.is_8bit && !p.is_16bit;
  const double rate =
      narrow ? device.peak8 * device.rates[Term::kGemm8] : device.peak * device.rates[Term::kGemm];
  const double flops = 2 * p.m * p.k * p.n * (is_aligned(p) ? 1 : kMisaligned);
  const double arithmetic = flops / (rate * (p.grouped ? device.rates[Term::kGrouped] : 1));
  const double felt = device.rates[Term::kWaves];
  const Product turned{p.m, p.n, p.k, p.count}, summed{p.k, p.m, p.n, p.count};
  const auto waves = [&](const Product& one) {
    return arithmetic * (1 - felt + felt * wave_factor(one, device.rates.processors));
  };
  const double bus = device.rates[Term::kOperands] / device.memory;
  const double width = narrow ? 1 : 2;
  const double operands = bus * (width * (p.m * p.k + p.k * p.n) + 2 * p.m * p.n);
  // Weight gradients are added to a buffer.
  const double weights = waves(summed) +
                         bus * (width * (p.m * p.k + p.m * p.n) + device.sum_bytes * p.k * p.n) +
                         device.stream(device.added_bytes * p.k * p.n);
  // Operands of 8-bit products are cast, and once more turned round for the backward pass. Without
  // kernels that do so on the way: two operands of each of three products.
  const double eager = device.cast_bytes, both = p.m * p.k + p.k * p.n;
  const double cast = narrow ? device.stream(eager > 0 ? eager * both : 2 * p.m * p.k) : 0;
  const double grad_cast =
      narrow ? device.stream(eager > 0 ? eager * (2 * p.m * p.n + both) : 4 * p.m * p.n) : 0;
  time.forward += p.count * (waves(p) + operands + cast);
  time.backward += p.count * (waves(turned) + operands + weights + grad_cast);
}

// FlashAttention-2 (Dao 2023, arXiv 2307.08691, figures 4 to 7): rates fall with narrow heads and
// short sequences; at 16k tokens and heads of 128 this is 1.
double attention_shape_factor(double dim, double seq) {
  return dim / (dim + 16) * 1.125 * seq / (seq + 400);
}

// On a ring, a kernel sees one rank's positions at a time, and every block after the first is
// merged into what is there: outputs and statistics are read and written in f32, gradients of
// queries and of keys and values added.
void add_ring_merges(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const double merges = (r.cp - 1) * r.tokens() / r.tp;
  time.forward += device.stream(merges * 10 * s.values());
  time.backward += device.stream(merges * (6 * s.q() + 16 * r.keys()));
}

void add_fused_attention(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const bool is_ring = r.cp > 1 && r.context == model::CpMethod::kRing;
  const double flops =
      2 * (s.heads / r.tp) * (s.qk_dim + s.v_dim) * mean_keys(s, r.seq) * r.tokens();
  const double seen = static_cast<double>(r.seq) / (is_ring ? r.cp : 1);
  // FlashAttention-2 reaches 35 % of an H100, FlashAttention-3 75 % at best, and trains 1.5 to 1.75
  // times as fast (Shah et al. 2024, arXiv 2407.08608).
  constexpr double kTorchOnHopper = 0.6;
  const bool is_older = r.stack.torch_attention && device.rates.family == "hopper";
  const double rate = device.peak * r.stack.attention_share * (is_older ? kTorchOnHopper : 1) *
                      attention_shape_factor(s.v_dim, seen);
  time.forward += flops / (rate * device.rates[Term::kAttention]);
  time.backward += 2.5 * flops / (rate * device.rates[Term::kAttention]);
  if (is_ring) add_ring_merges(r, device, time);
}

// Two batched products over all pairs of tokens and passes over the scores: softmax 4 bytes forward
// and 6 backward, dropout 5 and 5.
void add_plain_attention(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const double batch = static_cast<double>(r.microbatch) * s.heads / r.tp, seq = r.seq;
  const double rows = seq / r.cp;
  add_product(device, {rows, s.qk_dim, seq, batch, false, true}, time);
  add_product(device, {rows, seq, s.v_dim, batch, false, true}, time);
  const double scores = batch * rows * seq;
  const double passes = r.stack.fused_softmax ? 1 : 4;
  time.forward += device.stream(scores * (4 * passes + (r.stack.dropout ? 5 : 0)));
  time.backward += device.stream(scores * (6 * passes + (r.stack.dropout ? 5 : 0)));
}

void add_attention(const PriceRequest& r, const Device& device, ComputeTime& time) {
  if (r.stack.flash)
    add_fused_attention(r, device, time);
  else
    add_plain_attention(r, device, time);
}

// From latents to queries, keys and values.
void add_latents(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const double tokens = r.tokens(), t = r.tp;
  add_product(device, {tokens, s.q_rank > 0 ? s.q_rank : s.hidden, s.q() / t}, time);
  add_product(device, {tokens, s.kv_rank, s.heads * (s.qk_dim - s.rope_dim + s.v_dim) / t}, time);
}

void add_projections(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const double tokens = r.tokens(), h = s.hidden, t = r.tp;
  if (s.kv_rank > 0) {
    const double own = r.sp ? tokens / t : tokens;
    if (s.q_rank > 0) add_product(device, {own, h, s.q_rank}, time);
    add_product(device, {own, h, s.kv_rank + s.rope_dim}, time);
    add_latents(r, device, time);
  } else {
    add_product(device, {tokens, h, r.qkv() / t}, time);
  }
  add_product(device, {tokens, s.values() / t, h}, time);
}

void add_mlp(const PriceRequest& r, const Device& device, double width, ComputeTime& time) {
  const double tokens = r.tokens(), firsts = r.shape->mlp_matrices - 1;
  add_product(device, {tokens, r.shape->hidden, firsts * width / r.tp}, time);
  add_product(device, {tokens, width / r.tp, r.shape->hidden}, time);
}

// Of the tokens that this rank's experts meet, one product for each expert.
Product routed(const PriceRequest& r, double k, double n) {
  const ModelShape& s = *r.shape;
  const double met = static_cast<double>(r.ep * r.etp) / r.tp;
  const double each = s.top_k * r.tokens() * met / s.experts * r.imbalance;
  return {each, k, n, s.experts / r.ep, true};
}
Product routed_gate_up(const PriceRequest& r) {
  return routed(r, r.shape->hidden, 2 * r.shape->expert_ffn / r.etp);
}

void add_experts(const PriceRequest& r, const Device& device, ComputeTime& time) {
  const ModelShape& s = *r.shape;
  const double tokens = r.tokens();
  add_product(device, {tokens / (r.sp ? r.tp : 1), s.hidden, s.experts, 1, false, true}, time);
  add_product(device, routed_gate_up(r), time);
  add_product(device, routed(r, s.expert_ffn / r.etp, s.hidden), time);
  if (s.shared_ffn > 0) add_mlp(r, device, s.shared_ffn, time);
  // Dispatch, activation and combination of the routed tokens.
  const double routed = s.top_k * tokens * r.etp / r.tp;
  time.forward += device.stream(routed * (12 * s.hidden + 6 * s.expert_ffn / r.etp));
  time.backward += device.stream(routed * (12 * s.hidden + 10 * s.expert_ffn / r.etp));
}

// Elementwise passes: norms 4h and 6h bytes, residual sums 6h, rotation 4 (q + k), a gate 6f and
// 10f, GELU 4f and 6f; dropout adds a mask. Without kernels of their own a rotation casts to f32
// and back around a complex product (24 bytes an element), and a gate is an activation and a
// product (10f and 18f).
ComputeTime elementwise(const PriceRequest& r, const Device& device, double width) {
  const ModelShape& s = *r.shape;
  const double h = s.hidden, norm = r.stack.fused_norms ? 1 : 8;
  double path = h * (4 * s.norms * norm + 12), path_grad = h * (6 * s.norms * norm + 12);
  if (r.stack.dropout) path += 2 * h, path_grad += 6 * h;
  const bool one_kernel = r.stack.fused_passes;
  double inner = (one_kernel ? 4 : 24) * (s.q() + r.keys()), inner_grad = inner;
  const bool gated = s.mlp_matrices > 2;
  inner += (gated ? one_kernel ? 6 : 10 : 4) * width;
  inner_grad += (gated ? one_kernel ? 10 : 18 : 6) * width;
  const double tokens = r.tokens(), parts = r.sp ? r.tp : 1;
  return {device.stream(tokens * (path / parts + inner / r.tp)),
          device.stream(tokens * (path_grad / parts + inner_grad / r.tp))};
}

// Of rows that a product with weights, or attention, rebuilds.
double costly_seconds(const PriceRequest& r, bool expert_layer, const Device& device) {
  const ModelShape& s = *r.shape;
  const double tokens = r.tokens(), h = s.hidden, t = r.tp;
  const double width = expert_layer ? s.shared_ffn : s.ffn;
  ComputeTime again;
  if (r.drop.qkv && s.kv_rank > 0)
    add_latents(r, device, again);
  else if (r.drop.qkv)
    add_product(device, {tokens, h, r.qkv() / t}, again);
  if (r.drop.attn_out) add_attention(r, device, again);
  if (r.drop.middle && s.sums_into_residual())
    add_product(device, {tokens, s.values() / t, h}, again);
  if (r.drop.gate_up) add_product(device, {tokens, h, (s.mlp_matrices - 1) * width / t}, again);
  if (r.drop.gate_up && expert_layer) add_product(device, routed_gate_up(r), again);
  return again.forward;
}

// Of what a block drops besides. Rows that one elementwise pass rebuilds are half of these passes,
// each by its share of the bytes.
double recompute_seconds(const PriceRequest& r, bool expert_layer, const Device& device,
                         const ComputeTime& layer, const ComputeTime& passes) {
  const model::Drop& drop = r.drop;
  const double seconds =
      passes.forward / 2 * dropped_share(r, expert_layer) + costly_seconds(r, expert_layer, device);
  if (!drop.scores && !drop.attention && !drop.alternate_products) return seconds;
  ComputeTime attention;
  add_attention(r, device, attention);
  if (drop.alternate_products) {
    const ModelShape& s = *r.shape;
    const double recomputed = s.q() + r.keys() + s.ffn;
    const double all = 2 * (s.q() + r.keys()) + s.mlp_matrices * s.ffn;
    return passes.forward + (layer.forward - passes.forward - attention.forward) * recomputed / all;
  }
  return drop.attention ? passes.forward + attention.forward : seconds + attention.forward;
}

// Bytes that cross the bus for each logit. PyTorch: a cast (2 + 4), log-softmax (4 + 4); its
// gradient (4 + 4) and a cast back (4 + 2). Megatron's vocab_parallel_cross_entropy: a cast (6),
// maximum (4), difference, exponential and quotient (8 each), sum (4); backward one product (8) and
// a cast (6).
struct LossBytes {
  double forward, backward;
};

LossBytes loss_bytes(Loss loss) {
  switch (loss) {
    case Loss::kTorch:
      return {14, 14};
    case Loss::kVocabulary:
    case Loss::kInPlace:
      return {38, 14};
    case Loss::kFused:
      break;
  }
  return {4, 4};
}

// Weights to 16 bits, and gradients back.
void add_autocast(const PriceRequest& r, const Device& device, const PartParams& params,
                  ComputeTime& time) {
  const RankParams own = on_rank(r, params);
  const double seconds = device.stream(r.stack.autocast_bytes * (own.dense + own.expert));
  time.forward += seconds, time.backward += seconds;
}

}  // namespace

double peak_of(const PriceRequest& r, Precision precision) {
  const cluster::DeviceType& device = r.cluster->device;
  if (precision == Precision::kFp8) return device.peak_fp8.value;
  if (precision == Precision::kFp32) return device.peak_f32.value;
  return device.peak_bf16.known() ? device.peak_bf16.value : device.peak_f16.value;
}

ComputeTime attention_compute(const PriceRequest& r) {
  ComputeTime time;
  add_attention(r, Device(r), time);
  return time;
}

ComputeTime layer_compute(const PriceRequest& r, bool expert_layer) {
  const Device device(r);
  const ComputeTime passes =
      elementwise(r, device, expert_layer ? r.shape->shared_ffn : r.shape->ffn);
  ComputeTime time = passes;
  add_projections(r, device, time);
  add_attention(r, device, time);
  if (expert_layer)
    add_experts(r, device, time);
  else
    add_mlp(r, device, r.shape->ffn, time);
  add_autocast(
      r, device,
      expert_layer ? expert_layer_params(*r.shape, r.tp) : plain_layer_params(*r.shape, r.tp),
      time);
  time.recompute = recompute_seconds(r, expert_layer, device, time, passes);
  return time;
}

ComputeTime head_compute(const PriceRequest& r) {
  const Device device(r);
  ComputeTime time;
  const double tokens = r.tokens(), vocabulary = padded_vocab(r) / r.tp, h = r.shape->hidden;
  add_product(device, {tokens, h, vocabulary, 1, false, true}, time);
  const double columns = vocabulary * (r.stack.whole_logits ? r.tp : 1);
  const LossBytes loss = loss_bytes(r.stack.loss);
  time.forward += device.stream(tokens * (columns * loss.forward + 6 * h));
  time.backward += device.stream(tokens * (columns * loss.backward + 10 * h));
  add_autocast(r, device, head_params(*r.shape), time);
  return time;
}

double optimizer_seconds(const PriceRequest& r, double parameters) {
  // Adam reads gradient, master copy and moments (16 bytes), writes the last three and the working
  // weight (14), and the norm of the gradient reads it once more (4).
  return Device(r).stream(34 * parameters);
}

}  // namespace lockstep::cost
