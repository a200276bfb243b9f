// The user's request, from a run file:
//
//   [model]
//   name = "llama3-8b"        # a known model, each of whose sizes may be replaced
//   [cluster]
//   name = "h100:64"          # a short name, or a cluster file
//   [layout]
//   tp = 4                    # dp is what is left of the cluster
//   pp = 2
//   [batch]
//   seq = 8192
//   global_batch = 128
//   [data]
//   files = ["web", "code"]   # PREFIX.bin and PREFIX.idx, beside the run file
//   weights = [0.7, 0.3]
//
// A Spec that exists is consistent: every rule below holds. Plain data; any thread may read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/buffer.h"
#include "lockstep/base/dtype.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/config/document.h"
#include "lockstep/config/fields.h"
#include "lockstep/data/sample_order.h"
#include "lockstep/model/model_config.h"
#include "lockstep/spec/layout.h"
#include "lockstep/spec/learning_rate.h"

namespace lockstep::spec {

// What becomes of a step whose loss or gradient norm is not finite. It changes nothing either way.
enum class OnNonfinite : std::uint8_t {
  kStop,
  kSkip,  // the run goes on with the next samples; train::kMostSkipped in a row end it
};
std::string_view to_text(OnNonfinite policy);  // "stop"

struct Train {
  std::int64_t steps = 0;
  LearningRate lr = {};
  double weight_decay = 0;
  double clip = 0;  // limit of the global gradient norm; 0: none
  std::int64_t seed = 0;
  DType dtype = DType::kBF16;
  bool decay_embeddings = true;                  // and a head tied to them
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;  // of AdamW
  std::int64_t head_chunk = 0;  // tokens of a microbatch whose logits exist at once; 0: all
  // Of a mixture's losses (parts/experts.cc): of balance within sequences, and of large logits.
  double moe_aux_loss_coeff = 0, moe_z_loss_coeff = 0;
  double moe_bias_update_rate = 1e-3;  // of selection biases, a step
  bool tp_overlap = true;              // gradients of weights beside collectives of tensor ranks
  int threads = 1;                     // that share the work of one operation, of a rank
  std::int64_t noise_scale =
      0;  // steps over which the gradient noise scale is averaged; 0: unmeasured
  std::int64_t check_interval = 0;  // steps between two checks of the state; 0: none
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::int64_t eval_interval = 0;  // steps between two evaluations; 0: none
  std::int64_t eval_samples = 0;   // of the validation split that each looks at
  Seconds op_deadline = {600};     // of a collective, as c10d has it; no part of what is trained
  bool operator==(const Train&) const = default;
};

struct Spec {
  model::ModelConfig model;
  std::optional<cluster::Cluster> cluster;  // absent: as many ranks as the degrees make
  Layout layout;
  Batch batch;
  Train train;
  DeviceKind device = DeviceKind::kCpu;   // that ranks compute on
  data::Corpus data;                      // no files: the run has none
  std::int64_t world() const;             // tp x cp x pp x dp
  std::int64_t num_microbatches() const;  // of a data-parallel rank in a step
};

// "llama3-8b on h100:64: tp 4 x cp 1 x pp 2 x dp 8, zero 1; 128 sequences of 8,192 tokens a step,
// 16 microbatches per data-parallel rank".
std::string to_text(const Spec& spec);

// Every key of a run file.
const config::FieldTable& run_fields();

// The Spec, or nothing and every mistake in `report`: first of single keys, then of keys that
// contradict each other. The rules about several keys, which name both:
//   tp x cp x pp x dp = devices of the cluster     dp_shard divides dp
//   ep x etp divides tp x cp x dp                  stages may be uneven, never empty
//   tp divides heads and ffn, and kv_heads or is a multiple of them
//                                                  ep divides the experts, etp their width
//   dp x microbatch divides global_batch and the sizes of a ramp, whose increments end there
//   seq <= positions the model can learn           seq is cut evenly by cp (twice: zigzag) and sp
//   ep, etp > 1 only with experts                  pp x chunks <= layers; stages add up to layers
//   chunks that the schedule can run               tp x cp divides heads where context = ulysses,
//                                                  cp a tensor rank's kv_heads or the reverse
//   dp_shard < dp, resident, prefetch only where ZeRO makes use of them; context only with cp > 1
//   min_lr <= lr, and decay_steps, only where the learning rate falls to and over them
//   as many weights as files; weights, split and a seed of the data only with files
//   noise_scale only with several microbatches in a batch, and a head of its own
//   dp x microbatch divides eval_samples, which only evaluations read
// A seq beyond rotary positions and a warmup beyond the steps are warnings.
std::optional<Spec> read_spec(const config::Document& document, config::Report& report);

}  // namespace lockstep::spec
