#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/user_model.h"
#include "lockstep/spec/data_fields.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {
namespace {

using config::Field;
using config::FieldType;

constexpr double kMaxSize = 2147483647;  // of a tensor dimension or a degree
constexpr double kMaxCount = 1e15;       // of steps and sequences

Field degree(std::string name, std::string doc, std::vector<std::string> known_as) {
  return {.path = "layout." + name,
          .type = FieldType::kInt,
          .doc = std::move(doc),
          .initial = "1",
          .min = 1,
          .max = kMaxSize,
          .known_as = std::move(known_as)};
}

// The keys of a model file, of which a run needs only the name.
std::vector<Field> model_fields() {
  std::vector<Field> fields;
  for (Field field : model::model_fields().fields()) {
    if (field.path == "name") {
      field.doc =
          "A known model (`lockstep model --list`), the other keys of this table replacing its "
          "values; alone in its table, also a model file, ending in .toml or .json.";
      field.required_unless = "the table describes a model";
    }
    // Here a known name serves as `like`.
    constexpr std::string_view kLike = "`like` ";
    if (field.required_unless.starts_with(kLike))
      field.required_unless.insert(kLike.size(), "or a known name ");
    field.path = "model." + field.path;
    fields.push_back(std::move(field));
  }
  return fields;
}

std::vector<Field> degree_fields() {
  return {
      degree("tp", "Tensor-parallel degree: heads and MLP columns are divided.",
             {"tensor_model_parallel_size", "tensor_parallel_degree", "tensor_parallel"}),
      degree("cp", "Context-parallel degree: the sequence is divided.",
             {"context_parallel_size", "context_parallel_degree"}),
      {.path = "layout.context",
       .type = FieldType::kChoice,
       .doc =
           "How the ranks of a sequence meet in attention: keys and values go round a ring or are "
           "gathered, or heads are exchanged for positions (Ulysses); only with cp > 1.",
       .initial = "\"" + context_names().front() + "\"",
       .choices = context_names(),
       .known_as = {"cp_comm_type"}},
      degree("pp", "Pipeline-parallel degree: the blocks are divided.",
             {"pipeline_model_parallel_size", "pipeline_parallel_degree", "pipeline_parallel"}),
      {.path = "layout.dp",
       .type = FieldType::kInt,
       .doc = "Data-parallel degree: the batch is divided. Without it, what tp x cp x pp leaves of "
              "the cluster; without a cluster, 1.",
       .min = 1,
       .max = kMaxSize,
       .known_as = {"data_parallel_size", "data_parallel_degree"}},
      {.path = "layout.dp_shard",
       .type = FieldType::kInt,
       .doc = "Ranks that share one sharded copy (hybrid sharding); divides dp. Without it, dp.",
       .min = 1,
       .max = kMaxSize,
       .known_as = {"data_parallel_shard_degree"}},
      degree("ep", "Expert-parallel degree: the experts are divided.",
             {"expert_model_parallel_size", "expert_parallel_degree"}),
      degree("etp", "Tensor-parallel degree inside an expert.", {"expert_tensor_parallel_size"}),
  };
}

std::vector<Field> policy_fields() {
  return {
      {.path = "layout.sp",
       .type = FieldType::kBool,
       .doc = "Divide norms and residuals along the sequence over the tensor axis.",
       .initial = "true",
       .known_as = {"sequence_parallel"}},
      {.path = "layout.zero",
       .type = FieldType::kInt,
       .doc = "What the data axis shards: 0 nothing, 1 optimizer state, 2 gradients too, 3 "
              "parameters too.",
       .initial = "1",
       .min = 0,
       .max = 3,
       .known_as = {"zero_stage", "use_distributed_optimizer"}},
      {.path = "layout.order",
       .type = FieldType::kString,
       .doc = "Order of the axes over the ranks, the axis of neighbours first.",
       .initial = "\"tp,cp,pp,dp\""},
      {.path = "layout.schedule",
       .type = FieldType::kChoice,
       .doc = "Pipeline schedule: the order in which stages run microbatches.",
       .initial = "\"" + Layout().schedule + "\"",
       .choices = schedule_names(),
       .known_as = {"pipeline_parallel_schedule", "pp_schedule", "pp_engine"}},
      {.path = "layout.chunks",
       .type = FieldType::kInt,
       .doc = "Stages per pipeline coordinate, for the schedules that interleave them.",
       .initial = "1",
       .min = 1,
       .max = kMaxSize,
       .known_as = {"num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size",
                    "vpp"}},
      {.path = "layout.layers",
       .type = FieldType::kString,
       .doc = "Layers of each stage, in their order, joined by +: `9x2+8+6` is 9 on two "
              "stages, then 8, and 6 where the head makes the last one slower. Without it they are "
              "dealt evenly.",
       .known_as = {"pipeline_model_parallel_layout", "num_layers_in_last_pipeline_stage",
                    "decoder_last_pipeline_num_layers"}},
      {.path = "layout.reduce",
       .type = FieldType::kChoice,
       .doc = "After how much backward work gradients are summed over the data axis. Without it, "
              "`step` for zero 0 and 1, `microbatch` for 2 and 3, which save no gradient memory "
              "otherwise.",
       .choices = {std::string(name_of(Period::kStep)), std::string(name_of(Period::kMicrobatch))},
       .known_as = {"reduce_period"}},
      {.path = "layout.recompute",
       .type = FieldType::kString,
       .doc =
           "What a block's backward pass makes again instead of keeping it: `none`, `cheap`, "
           "`block` (all but its input), `block:3x2+1+0` (so many blocks of each stage, its first; "
           "`cheap+block:3x2+1+0` and the others cheaply), or rows joined by +: "
           "`attn_norm.output`, `mlp_norm.output`, `mlp.product` (`cheap` is all three).",
       .initial = "\"none\"",
       .known_as = {"recompute_granularity", "recompute_modules", "activation_checkpointing",
                    "activation_checkpoint", "recompute_layer"}},
  };
}

std::vector<Field> gather_fields() {
  return {
      {.path = "layout.resident",
       .type = FieldType::kInt,
       .doc = "With zero 3: gathered units kept at a time, the one in use included. Without it, 1.",
       .min = 1,
       .max = kMaxSize,
       .known_as = {"stage3_max_live_parameters"}},
      {.path = "layout.prefetch",
       .type = FieldType::kInt,
       .doc = "With zero 3: units are gathered this many computations early. Without it, 1.",
       .min = 0,
       .max = kMaxSize,
       .known_as = {"stage3_prefetch_bucket_size"}},
  };
}

std::vector<Field> batch_fields() {
  return {
      {.path = "batch.seq",
       .type = FieldType::kInt,
       .doc = "Length of a sequence.",
       .required = true,
       .unit = "tokens",
       .min = 1,
       .max = kMaxSize,
       .known_as = {"seq_length", "seq_len", "sequence_length"}},
      {.path = "batch.global_batch",
       .type = FieldType::kInt,
       .doc = "Sequences in one step, over all ranks.",
       .required = true,
       .unit = "sequences",
       .min = 1,
       .max = kMaxCount,
       .known_as = {"global_batch_size", "train_batch_size"}},
      {.path = "batch.microbatch",
       .type = FieldType::kInt,
       .doc = "Sequences that go through the pipeline together.",
       .initial = "1",
       .unit = "sequences",
       .min = 1,
       .max = kMaxCount,
       .known_as = {"micro_batch_size", "local_batch_size", "train_micro_batch_size_per_gpu"}},
      {.path = "batch.ramp_start",
       .type = FieldType::kInt,
       .doc = "Sequences in the first step, where the batch grows to `global_batch`; 0 for a batch "
              "that does not.",
       .initial = "0",
       .unit = "sequences",
       .min = 0,
       .max = kMaxCount,
       .known_as = {"rampup_batch_size"}},
      {.path = "batch.ramp_increment",
       .type = FieldType::kInt,
       .doc = "Sequences that a growing batch gets more at a time.",
       .initial = "0",
       .unit = "sequences",
       .min = 0,
       .max = kMaxCount},
      {.path = "batch.ramp_samples",
       .type = FieldType::kInt,
       .doc = "Sequences over which the increments are spread evenly.",
       .initial = "0",
       .unit = "sequences",
       .min = 0,
       .max = kMaxCount},
  };
}

std::vector<Field> rate_fields() {
  return {
      {.path = "train.lr",
       .type = FieldType::kReal,
       .doc = "Peak learning rate.",
       .initial = "3e-4",
       .min = 0,
       .max = 1e3,
       .above_min = true,
       .known_as = {"learning_rate"}},
      {.path = "train.warmup",
       .type = FieldType::kInt,
       .doc = "Steps over which the learning rate rises to its peak.",
       .initial = "0",
       .min = 0,
       .max = kMaxCount,
       .known_as = {"lr_warmup_iters", "warmup_steps"}},
      {.path = "train.lr_decay",
       .type = FieldType::kChoice,
       .doc = "How the learning rate falls after the warmup: not at all, straight or along half a "
              "cosine to the end of the run, or straight over the last `decay_steps`.",
       .initial = "\"constant\"",
       .choices = decay_names(),
       .known_as = {"lr_decay_style", "lr_scheduler_type"}},
      {.path = "train.min_lr",
       .type = FieldType::kReal,
       .doc = "Learning rate at the end of the fall.",
       .initial = "0.0",
       .min = 0,
       .max = 1e3,
       .known_as = {"lr_min", "min_learning_rate"}},
      {.path = "train.decay_steps",
       .type = FieldType::kInt,
       .doc = "Steps of the fall at the end of the run, with lr_decay = \"wsd\".",
       .initial = "0",
       .min = 0,
       .max = kMaxCount,
       .known_as = {"lr_wsd_decay_iters"}},
  };
}

std::vector<Field> train_fields() {
  return {
      {.path = "train.steps",
       .type = FieldType::kInt,
       .doc = "Optimizer updates to make.",
       .initial = "1000",
       .min = 1,
       .max = kMaxCount,
       .known_as = {"train_iters", "max_steps"}},
      {.path = "train.dtype",
       .type = FieldType::kChoice,
       .doc = "Type the model computes in; master weights and gradients of bf16 are f32.",
       .initial = "\"bf16\"",
       .choices = {"f64", "f32", "bf16"},
       .refused = {{"fp16", "it needs loss scaling and offers nothing that bf16 lacks"},
                   {"f16", "it needs loss scaling and offers nothing that bf16 lacks"},
                   {"fp8", "it needs a GPU back end, which does not exist yet"}},
       .known_as = {"precision", "torch_dtype"}},
      {.path = "train.weight_decay",
       .type = FieldType::kReal,
       .doc = "Decoupled weight decay of AdamW; norms and biases have none.",
       .initial = "0.1",
       .min = 0,
       .max = 1e3},
      {.path = "train.decay_embeddings",
       .type = FieldType::kBool,
       .doc = "Whether embeddings decay too, and with them a head that shares their weight.",
       .initial = "true"},
      {.path = "train.clip",
       .type = FieldType::kReal,
       .doc = "Limit of the global gradient norm; 0 for none.",
       .initial = "1.0",
       .min = 0,
       .known_as = {"clip_grad", "max_norm", "gradient_clipping"}},
      {.path = "train.seed",
       .type = FieldType::kInt,
       .doc = "Initial weights and the order of the data follow from it, in every layout.",
       .initial = "1234",
       .min = 0},
      {.path = "train.noise_scale",
       .type = FieldType::kInt,
       .doc = "Steps over which the gradient noise scale is averaged; 0 not to measure it.",
       .initial = "0",
       .min = 0,
       .max = kMaxCount},
      {.path = "train.on_nonfinite",
       .type = FieldType::kChoice,
       .doc = "What a step whose loss or gradient norm is not finite does, apart from changing "
              "nothing: it ends the run, or is skipped; more than ten such steps in a row end the "
              "run all the same.",
       .initial = "\"stop\"",
       .choices = {std::string(to_text(OnNonfinite::kStop)),
                   std::string(to_text(OnNonfinite::kSkip))}},
  };
}

Field beta(std::string name, std::string initial) {
  return {.path = "train." + name,
          .type = FieldType::kReal,
          .doc = "How much AdamW keeps of a moment from step to step.",
          .initial = std::move(initial),
          .min = 0,
          .max = 0.999999,
          .known_as = {"adam_" + name}};
}

std::vector<Field> step_fields() {
  return {
      beta("beta1", "0.9"),
      beta("beta2", "0.95"),
      {.path = "train.eps",
       .type = FieldType::kReal,
       .doc = "What AdamW adds to the root of the second moment before it divides by it.",
       .initial = "1e-8",
       .min = 0,
       .max = 1,
       .above_min = true,
       .known_as = {"adam_eps", "adam_epsilon"}},
      {.path = "train.head_chunk",
       .type = FieldType::kInt,
       .doc = "Tokens of a microbatch whose logits exist at once; 0 for all of them.",
       .initial = "0",
       .unit = "tokens",
       .min = 0,
       .max = kMaxSize,
       .known_as = {"loss_chunk_size", "ce_chunk_size"}},
      {.path = "train.threads",
       .type = FieldType::kInt,
       .doc = "Threads of a rank that share the work of one operation (intra-op threads).",
       .initial = "1",
       .min = 1,
       .max = 1024,
       .known_as = {"num_threads", "intra_op_threads"}},
      {.path = "train.op_deadline",
       .type = FieldType::kReal,
       .doc = "Seconds after which a collective, or a rank without a heartbeat, ends the run. The "
              "death of a rank ends it at once.",
       .initial = "600.0",
       .min = 1,
       .max = 1e6,
       .known_as = {"distributed_timeout", "timeout"}},
  };
}

std::vector<Field> evaluation_fields() {
  return {
      {.path = "train.eval_interval",
       .type = FieldType::kInt,
       .doc = "Steps between two evaluations on the held-out split; the last step is followed by "
              "one too. 0 for none.",
       .initial = "0",
       .min = 0,
       .max = kMaxCount,
       .known_as = {"eval_steps", "val_interval"}},
      {.path = "train.eval_samples",
       .type = FieldType::kInt,
       .doc = "Sequences that an evaluation looks at, always the same. Without it, global_batch.",
       .unit = "sequences",
       .min = 1,
       .max = kMaxCount,
       .known_as = {"eval_iters"}},
  };
}

}  // namespace

const config::FieldTable& run_fields() {
  static const config::FieldTable table = [] {
    std::vector<Field> fields = model_fields();
    fields.push_back({.path = "cluster.name",
                      .type = FieldType::kString,
                      .doc = "The machine: a short name such as \"h100:64\", or a cluster file "
                             "ending in .toml or .json. Without it, as many ranks as the degrees "
                             "make."});
    for (auto part :
         {degree_fields(), policy_fields(), gather_fields(), batch_fields(), train_fields(),
          rate_fields(), step_fields(), evaluation_fields(), data_fields()})
      for (Field& field : part) fields.push_back(std::move(field));
    return config::FieldTable("run", std::move(fields));
  }();
  return table;
}

}  // namespace lockstep::spec
