// The pricing interface: a model, a layout, a batch and a cluster in; time by term, memory by class
// and feasibility out. Closed forms only, a few hundred additions and no allocation on the way, so
// that a search can ask it for every layout. One term per file beside this one: peak_memory.h,
// compute_time.h, collective_time.h, step_time.cc; each states its formula and source.
//
//   PriceRequest request{.shape = &shape, .cluster = &cluster, .rates = &rates_of(cluster.device)};
//   request.tp = 8; request.pp = 16; request.dp = 128; ...
//   const Price price = cost::price(request);
//
// What can be priced is more than what runs here: experts that tensor ranks do not share, latent
// attention and 8-bit products are priced too. spec::legal() says which layouts run.
// Pure functions of plain values; any thread may call them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/cost/analytic/collective_time.h"
#include "lockstep/cost/analytic/model_shape.h"
#include "lockstep/model/context.h"
#include "lockstep/model/drop.h"
#include "lockstep/pipeline/catalog.h"

namespace lockstep::cost {

enum class Precision : std::uint8_t { kBf16, kFp8, kFp32 };  // of matrix products; fp16 is kBf16

// How the loss reads and writes its logits.
enum class Loss : std::uint8_t {
  kFused,       // one kernel in place of the logits
  kTorch,       // a cast to f32 and PyTorch's log-softmax
  kVocabulary,  // Megatron's vocabulary-parallel loss: f32, a kernel for each elementwise step
  kInPlace,     // the same steps, all but the first in place (nanotron)
};

// Of how many blocks a stage may keep the input alone.
enum class RecomputeCount : std::uint8_t {
  kEachStage,   // every stage has its own number
  kSameNumber,  // one number for all stages; those with fewer blocks recompute all (Megatron)
  kAllOrNone,
};

// Traits of the software that runs the step; the defaults are today's.
struct Stack {
  bool flash = true;             // fused attention
  double attention_share = 1;    // of the rate of attention kernels written for these devices
  bool torch_attention = false;  // on Hopper kernels of the devices before: FlashAttention-2
  bool fused_norms = true;       // one kernel per norm
  bool fused_passes = true;      // one kernel for a rotation, one for a gate with its product
  bool fused_sums = true;        // weight gradients are added up inside their products
  bool fused_softmax = true;     // of unfused attention: scale, mask and softmax in one kernel
  bool dropout = false;
  bool overlap_data = true;    // gradient reduction under backward, parameter gather under forward
  bool overlap_tensor = true;  // tensor-parallel collectives under chunked products
  bool overlap_regather = true;  // with sequence parallelism, a linear's input under its gradient
  bool overlap_pipe = true;      // transfers under the next chunk
  bool keeps_gathered = false;   // with sequence parallelism, inputs of linears are kept whole
  bool weight_grad_scratch =
      false;  // a bf16 gradient per distinct weight shape (TransformerEngine)
  Loss loss = Loss::kFused;
  bool whole_logits = false;  // tensor ranks gather the logits and each computes all of the loss
  bool whole_reduce = false;  // a sharded optimizer still gets all gradients (DeepSpeed's stage 1)
  double gaps = 0;  // share of compute time by which idle moments between kernels lengthen it
  // Spread of one pass's time: ranks that meet after each wait for the slowest. Of the software
  // more than of the device: collections of garbage, data loading and launches fall at other
  // moments on other ranks (MegaScale, arXiv 2402.15627, section 6.2). stacks.h says how it was
  // fitted.
  double jitter = 0.002;
  double host_factor = 1;  // of launch time: graphs and compilers 0.3, eager Python 1
  // An element of an operand on its way to 8 bits, where no kernel before does it; 0: one does.
  double cast_bytes = 0;
  double autocast_bytes =
      0;  // a parameter of each pass, where weights are f32 and products are not
  // Exchanges between experts run beside another microbatch's passes, on some of the processors.
  bool overlap_expert = false;
  bool narrow_dispatch = false;  // tokens and gradients go to experts in 8 bits, and return in 16
  bool narrow_kept = false;      // what products read backwards is kept in 8 bits
  // The router's weights multiply what goes into an expert's last product, not what comes out: so
  // nothing that comes out is kept.
  bool weighted_products = false;
  double weight_bytes = 2, grad_bytes = 4, optimizer_bytes = 12;
  double reduce_bytes = 4;  // of a gradient on the wire
  double bucket_bytes = 0;  // of reductions and gathers, held all the time
  // Bytes a parameter of buckets that are as large as all gradients: PyTorch's
  // DistributedDataParallel, whose gradients are no views of them by default
  // (gradient_as_bucket_view).
  double ddp_buckets = 0;
  // Of what data ranks could send over the network, when nothing is hidden and buckets follow each
  // other. Of the software: stacks.h says how it was fitted.
  double network_share = 1;
  bool expandable_segments = false;     // of PyTorch's allocator, whose holes are filled then
  bool reduce_each_microbatch = false;  // ZeRO-2: gradients are reduced after every backward pass
  bool even_stages = false;             // every pipeline stage has as many layers
  // PyTorch's pipelines: every microbatch of a step has buffers of its own for what a stage
  // receives.
  bool torch_pipeline = false;
  bool holds_outputs = false;  // and what stages send, and logits, are held until the step ends
  // Whole gradients of a chunk are reduced when it has seen all microbatches. Memory may then fall
  // where a microbatch grows, so that nothing that is sought has it.
  bool reduce_each_chunk = false;
  RecomputeCount recompute_count = RecomputeCount::kEachStage;
  bool operator==(const Stack&) const = default;
};

// Which axis lies inside which on the network, innermost first.
enum class Placement : std::uint8_t {
  kDataInside,  // tp cp dp pp (Megatron's default)
  kPipeInside,  // tp cp pp dp (Llama 3)
};

struct PriceRequest {
  const ModelShape* shape = nullptr;
  const cluster::Cluster* cluster = nullptr;
  const cluster::DeviceRates* rates = nullptr;
  int seq = 0;                                    // tokens
  std::int64_t global_batch = 0, microbatch = 1;  // sequences; dp x microbatch divides global_batch
  // Degrees; tp x cp x pp x dp is the number of devices, at most cluster::kMaxDevices. ep x etp
  // divides tp x cp x dp.
  int tp = 1, cp = 1, pp = 1, dp = 1, ep = 1, etp = 1;
  int dp_shard = 0;  // of dp x cp, devices that share states; 0: all of them (no hybrid sharding)
  int zero = 1;
  bool sp = true;  // sequence parallelism along tp
  const pipeline::CatalogRow* schedule = &pipeline::row("1f1b");
  int chunks = 1;
  int first_layers = 0, last_layers = 0;  // of the pipeline's ends; 0: as split_layers() divides
  model::Drop drop = {};
  int recomputed = 0;  // blocks of each pipeline rank that drop.block is of, its first; 0: all
  Precision precision = Precision::kBf16;
  Placement placement = Placement::kDataInside;
  model::CpMethod context = model::CpMethod::kRing;  // nothing when cp is 1
  double headroom = 0;   // share of a device's memory that must stay free
  double imbalance = 1;  // load of the busiest expert rank over the mean
  Stack stack = {};

  // Width of the keys of all tensor ranks: more of them than heads of keys hold one each.
  double keys() const { return std::max(shape->k(), tp * shape->qk_dim); }
  // Queries, keys and values of a token.
  double qkv() const {
    const ModelShape& s = *shape;
    return s.kv_rank > 0 ? s.q() + s.heads * s.qk_dim + s.values() : s.q() + 2 * keys();
  }
  Fabric fabric() const { return {cluster, rates}; }
  double rate(cluster::Term term) const { return (*rates)[term]; }
  int devices() const { return tp * cp * pp * dp; }
  // Exact, as both are below 2^53; a division of 64-bit whole numbers costs a walk 4 % of its time.
  std::int64_t microbatches() const {
    const auto together = static_cast<double>(dp * microbatch);
    return static_cast<std::int64_t>(static_cast<double>(global_batch) / together);
  }
  bool cuts_batch() const { return microbatches() * dp * microbatch == global_batch; }
  double step_tokens() const { return static_cast<double>(global_batch) * seq; }
  // Of a microbatch on one rank: T.
  double tokens() const { return static_cast<double>(microbatch) * seq / cp; }
  double recomputed_of(double layers) const {
    return recomputed > 0 && recomputed < layers ? recomputed : layers;
  }
  // So many blocks of each rank keep their input alone; none of them: 0.
  void set_recomputed(int blocks) { recomputed = blocks, drop.block = blocks > 0; }
  int shard_group() const { return dp_shard > 0 ? dp_shard : dp * cp; }
  // From a rank to the next that shares its states, and to that of the next stage.
  int data_stride() const { return placement == Placement::kDataInside ? tp : tp * pp; }
  int pipe_stride() const { return placement == Placement::kDataInside ? tp * cp * dp : tp * cp; }
  // Ranks that hold the same experts, and from one to the next.
  int expert_copies() const { return tp * cp * dp / (ep * etp); }
  int expert_stride() const { return ep * etp * (placement == Placement::kDataInside ? 1 : pp); }
};

// Parameters of one rank, before sharding over data.
struct RankParams {
  double dense = 0, expert = 0;
};
inline RankParams on_rank(const PriceRequest& r, const PartParams& params) {
  return {params.tensor / r.tp + params.replicated, params.expert / (r.ep * r.etp)};
}

// Seconds of one step on the slowest rank. The total is the sum of all others.
struct StepTime {
  double forward = 0, backward = 0, recompute = 0, head = 0;       // compute of the busiest stage
  double tensor = 0, context = 0, expert = 0, pipe = 0, data = 0;  // exposed communication by axis
  double bubble = 0, optimizer = 0, spread = 0;
  // Of passes, with what they wait for themselves.
  double passes() const {
    return forward + backward + recompute + head + tensor + context + expert;
  }
  double total() const { return passes() + pipe + data + bubble + optimizer + spread; }
};

struct StepTerm {
  const char* name;  // "recompute", as people and files read it
  double StepTime::* seconds;
  const char* meaning;
};
// Every term once, in the order of StepTime.
inline constexpr std::array<StepTerm, 12> kStepTerms = {{
    {"forward", &StepTime::forward, "matrix products, attention and elementwise passes"},
    {"backward", &StepTime::backward, "gradients of inputs and of weights"},
    {"recompute", &StepTime::recompute, "activations recomputed before backward"},
    {"head", &StepTime::head, "projection to the vocabulary, and the loss"},
    {"tensor", &StepTime::tensor, "tensor-parallel communication that nothing hides"},
    {"context", &StepTime::context, "context-parallel communication that nothing hides"},
    {"expert", &StepTime::expert, "expert exchanges that nothing hides"},
    {"pipe", &StepTime::pipe, "transfers between pipeline ranks"},
    {"data", &StepTime::data, "data-parallel communication that nothing hides"},
    {"bubble", &StepTime::bubble, "pipeline ranks that wait"},
    {"optimizer", &StepTime::optimizer, "update of the weights"},
    {"spread", &StepTime::spread, "waiting for slower devices"},
}};

enum class PeakEvent : std::uint8_t { kLoss, kBlockBackward, kOptimizer };
std::string_view to_text(PeakEvent event);  // "loss point"

// Bytes on the rank that holds most, at its worst moment.
struct Memory {
  double weights = 0, grads = 0, optimizer = 0;
  double activations = 0, logits = 0, transients = 0;
  double holes = 0;      // of the allocator's reserve, not allocated
  bool is_host = false;  // cluster::DeviceType::is_host: nothing lies around what is allocated
  int stage = 0;
  PeakEvent event = PeakEvent::kLoss;
  double allocated() const {
    return weights + grads + optimizer + activations + logits + transients;
  }
};

struct MemoryClass {
  const char* name;  // "gradients", as people and JSON read it
  double bytes;
};
// Of what is allocated, each with its share.
inline std::array<MemoryClass, 6> classes_of(const Memory& m) {
  return {{{"weights", m.weights},
           {"gradients", m.grads},
           {"optimizer", m.optimizer},
           {"activations", m.activations},
           {"logits", m.logits},
           {"transients", m.transients}}};
}

// How memory is read: what tensors take; with the holes between them, what their allocator holds;
// with context and communicators, what the vendor's tool shows of the device.
enum class Reading : std::uint8_t { kAllocated, kReserved, kShown };
inline constexpr EnumNames<Reading, 3> kReadings = {{"allocated", "reserved", "shown"}};
// On a host all are what is allocated. A run that ran on a device that has so many bytes reads no
// more: the allocator then gives back what nobody uses.
double read_bytes(const Memory& memory, Reading reading,
                  double has = std::numeric_limits<double>::infinity());
// What a device must have for the step to run when memory is short: less than would be shown where
// there is enough.
double device_bytes(const Memory& memory);
// The same layout where device_bytes() are so many times as many.
Memory scaled(const Memory& memory, double factor);
double capacity_bytes(const cluster::DeviceType& device);
double room_bytes(const PriceRequest& request);  // of which a layout may need so many

struct Price {
  StepTime time;
  Memory memory;
  bool fits = false;                    // device_bytes within usable
  double usable = 0;                    // room_bytes of the request
  double mfu_causal = 0, mfu_full = 0;  // model FLOPs over peak, by convention for attention
  double tokens_per_s = 0;              // of all devices
};

Price price(const PriceRequest& request);
Memory price_memory(const PriceRequest& request);
StepTime price_time(const PriceRequest& request);
// The same from times of its layers that were made before; layer_time.h says which layouts share
// them.
struct LayerTimes;
StepTime price_time(const PriceRequest& request, const LayerTimes& layers);
// Of one layer and microbatch.
struct PassPair {
  double forward = 0, backward = 0;
};
// The same where ZeRO-3 gathers the layer for each of them and reduces its gradients: with what
// they cannot hide.
PassPair sharded_layer(const PriceRequest& request, const PassPair& passes);
// What ranks of so many layers, whose passes take so long in all, cannot hide of stages 0 to 2.
double once_exposed_seconds(const PriceRequest& request, const PassPair& passes, double layers);
// What ranks wait for slower ones in a step of these terms; `time.spread` is not read.
double spread_seconds(const PriceRequest& request, const StepTime& time);
// One microbatch from a pipeline rank to the next; 0 without a pipeline.
double hop_seconds(const PriceRequest& request);

}  // namespace lockstep::cost
