#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/user_model.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/data_fields.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {
namespace {

using config::Field;
using config::FieldType;

constexpr double kMaxSize = 2147483647;  // of a tensor dimension or a degree
constexpr double kMaxCount = 1e15;       // of steps and sequences

struct Range {
  double min;
  double max = std::numeric_limits<double>::infinity();
};

Field whole(std::string path, std::string doc, std::string initial, Range range,
            std::vector<std::string> known_as = {}, std::string unit = "") {
  return {.path = std::move(path),
          .type = FieldType::kInt,
          .doc = std::move(doc),
          .initial = std::move(initial),
          .unit = std::move(unit),
          .min = range.min,
          .max = range.max,
          .known_as = std::move(known_as)};
}

Field real(std::string path, std::string doc, std::string initial, Range range,
           std::vector<std::string> known_as = {}) {
  Field field =
      whole(std::move(path), std::move(doc), std::move(initial), range, std::move(known_as));
  field.type = FieldType::kReal;
  return field;
}

Field required(Field field) {
  field.required = true;
  return field;
}

Field above_min(Field field) {
  field.above_min = true;
  return field;
}

Field degree(const std::string& name, std::string doc, std::vector<std::string> known_as) {
  return whole("layout." + name, std::move(doc), "1", {1, kMaxSize}, std::move(known_as));
}

std::vector<std::pair<std::string, std::string>> schedules_elsewhere() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    if (!row.pytorch.empty()) names.emplace_back(row.pytorch, row.name);
  return names;
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
      {.path = "layout.cp_comm_type",
       .type = FieldType::kChoice,
       .doc =
           "How the ranks of a sequence meet in attention: keys and values go round a ring or are "
           "gathered, or heads are exchanged for positions (Ulysses); only with cp > 1.",
       .initial = "\"" + context_names().front() + "\"",
       .choices = context_names(),
       .known_as = {"context"}},
      degree("pp", "Pipeline-parallel degree: the blocks are divided.",
             {"pipeline_model_parallel_size", "pipeline_parallel_degree", "pipeline_parallel"}),
      whole("layout.dp",
            "Data-parallel degree: the batch is divided. Without it, what tp x cp x pp leaves of "
            "the cluster; without a cluster, 1.",
            "", {1, kMaxSize}, {"data_parallel_size", "data_parallel_degree"}),
      whole("layout.dp_shard",
            "Ranks that share one sharded copy (hybrid sharding); divides dp. Without it, dp.", "",
            {1, kMaxSize}, {"data_parallel_shard_degree"}),
      degree("ep", "Expert-parallel degree: the experts are divided.",
             {"expert_model_parallel_size", "expert_parallel_degree"}),
      degree("etp", "Tensor-parallel degree inside an expert; divides tp, below which it needs sp.",
             {"expert_tensor_parallel_size"}),
  };
}

std::vector<Field> policy_fields() {
  return {
      {.path = "layout.sp",
       .type = FieldType::kBool,
       .doc = "Divide norms and residuals along the sequence over the tensor axis.",
       .initial = "true",
       .known_as = {"sequence_parallel"}},
      whole("layout.zero",
            "What the data axis shards: 0 nothing, 1 optimizer state, 2 gradients too, 3 "
            "parameters too.",
            "1", {0, 3}, {"zero_stage", "use_distributed_optimizer"}),
      {.path = "layout.order",
       .type = FieldType::kString,
       .doc = "Order of the axes over the ranks, the axis of neighbours first.",
       .initial = "\"tp,cp,pp,dp\""},
      {.path = "layout.schedule",
       .type = FieldType::kChoice,
       .doc = "Pipeline schedule: the order in which stages run microbatches.",
       .initial = "\"" + Layout().schedule + "\"",
       .choices = schedule_names(),
       .renamed = schedules_elsewhere(),
       .known_as = {"pipeline_parallel_schedule", "pp_schedule", "pp_engine"}},
      whole("layout.vpp",
            "Virtual stages per pipeline rank, for the schedules that interleave them.", "1",
            {1, kMaxSize},
            {"chunks", "virtual_stages", "num_virtual_stages_per_pipeline_rank",
             "virtual_pipeline_model_parallel_size"}),
      {.path = "layout.layers",
       .type = FieldType::kString,
       .doc =
           "Layers of each stage, in their order, joined by +: `9x2+8+6` is 9 on two "
           "stages, then 8, and 6 where the head makes the last one slower. Without it stages are "
           "even; where layers do not come out so, the last has one less, then the first, then "
           "those before the last.",
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
           "What a block's backward pass makes again instead of keeping it: `none`, `selective`, "
           "`full` (all but its input), `full:3x2+1+0` (so many blocks of each stage, its first; "
           "`selective+full:3x2+1+0` and the others selectively), or rows joined by +: "
           "`attn_norm.output`, `mlp_norm.output`, `mlp.product` (`selective` is these three), "
           "`attn.qkv`, `attn.core`, `attn.residual`, `mlp.gate_up`.",
       .initial = "\"none\"",
       .known_as = {"recompute_granularity", "recompute_modules", "activation_checkpointing",
                    "activation_checkpoint", "recompute_layer"}},
  };
}

std::vector<Field> gather_fields() {
  return {
      whole("layout.resident",
            "With zero 3: gathered units kept at a time, the one in use included. Without it, 1.",
            "", {1, kMaxSize}, {"stage3_max_live_parameters"}),
      whole("layout.prefetch",
            "With zero 3: units are gathered this many computations early. Without it, 1.", "",
            {0, kMaxSize}, {"stage3_prefetch_bucket_size"}),
  };
}

std::vector<Field> batch_fields() {
  return {
      required(whole("batch.seq", "Length of a sequence.", "", {1, kMaxSize},
                     {"seq_length", "seq_len", "sequence_length", "block_size"}, "tokens")),
      required(whole("batch.global_batch", "Sequences in one step, over all ranks.", "",
                     {1, kMaxCount}, {"global_batch_size", "train_batch_size"}, "sequences")),
      whole("batch.microbatch", "Sequences that go through the pipeline together.", "1",
            {1, kMaxCount},
            {"micro_batch_size", "local_batch_size", "train_micro_batch_size_per_gpu"},
            "sequences"),
      whole("batch.ramp_start",
            "Sequences in the first step, where the batch grows to `global_batch`; 0 for a batch "
            "that does not.",
            "0", {0, kMaxCount}, {"rampup_batch_size"}, "sequences"),
      whole("batch.ramp_increment", "Sequences that a growing batch gets more at a time.", "0",
            {0, kMaxCount}, {}, "sequences"),
      whole("batch.ramp_samples", "Sequences over which the increments are spread evenly.", "0",
            {0, kMaxCount}, {}, "sequences"),
  };
}

std::vector<Field> rate_fields() {
  return {
      above_min(real("train.lr", "Peak learning rate.", "3e-4", {0, 1e3}, {"learning_rate"})),
      whole("train.warmup", "Steps over which the learning rate rises to its peak.", "0",
            {0, kMaxCount}, {"lr_warmup_iters", "warmup_steps"}),
      {.path = "train.lr_decay",
       .type = FieldType::kChoice,
       .doc = "How the learning rate falls after the warmup: not at all, straight or along half a "
              "cosine to the end of the run, or straight over the last `decay_steps`.",
       .initial = "\"constant\"",
       .choices = decay_names(),
       .known_as = {"lr_decay_style", "lr_scheduler_type"}},
      real("train.min_lr", "Learning rate at the end of the fall.", "0.0", {0, 1e3},
           {"lr_min", "min_learning_rate"}),
      whole("train.decay_steps",
            "Steps of the fall at the end of the run, with lr_decay = \"wsd\".", "0",
            {0, kMaxCount}, {"lr_wsd_decay_iters"}),
  };
}

std::vector<Field> train_fields() {
  return {
      whole("train.steps", "Optimizer updates to make.", "1000", {1, kMaxCount},
            {"train_iters", "max_steps"}),
      {.path = "train.dtype",
       .type = FieldType::kChoice,
       .doc = "Type the model computes in; master weights and gradients of bf16 are f32.",
       .initial = "\"bf16\"",
       .choices = {"f64", "f32", "bf16"},
       .refused = {{"fp16", "it needs loss scaling and offers nothing that bf16 lacks"},
                   {"f16", "it needs loss scaling and offers nothing that bf16 lacks"},
                   {"fp8", "it needs a GPU back end, which does not exist yet"}},
       .renamed = {{"float64", "f64"},
                   {"double", "f64"},
                   {"float32", "f32"},
                   {"float", "f32"},
                   {"bfloat16", "bf16"}},
       .known_as = {"precision", "torch_dtype"}},
      real("train.weight_decay", "Decoupled weight decay of AdamW; norms and biases have none.",
           "0.1", {0, 1e3}),
      {.path = "train.decay_embeddings",
       .type = FieldType::kBool,
       .doc = "Whether embeddings decay too, and with them a head that shares their weight.",
       .initial = "true"},
      real("train.clip", "Limit of the global gradient norm; 0 for none.", "1.0", {0},
           {"clip_grad", "max_norm", "gradient_clipping"}),
      whole("train.seed",
            "Initial weights and the order of the data follow from it, in every layout.", "1234",
            {0}),
      whole("train.noise_scale",
            "Steps over which the gradient noise scale is averaged; 0 not to measure it.", "0",
            {0, kMaxCount}),
      whole("train.check_interval",
            "Steps between two checks that no rank's state was silently corrupted; 0 for none.",
            "0", {0, kMaxCount}, {"check_weight_hash_across_dp_replicas_interval"}, "steps"),
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
  return real("train." + name, "How much AdamW keeps of a moment from step to step.",
              std::move(initial), {0, 0.999999}, {"adam_" + name});
}

std::vector<Field> step_fields() {
  return {
      beta("beta1", "0.9"),
      beta("beta2", "0.95"),
      above_min(real("train.eps",
                     "What AdamW adds to the root of the second moment before it divides by it.",
                     "1e-8", {0, 1}, {"adam_eps", "adam_epsilon"})),
      whole("train.head_chunk",
            "Tokens of a microbatch whose logits exist at once; 0 for all of them.", "0",
            {0, kMaxSize}, {"loss_chunk_size", "ce_chunk_size"}, "tokens"),
      real("train.moe_aux_loss_coeff",
           "Of the loss that balances experts within each sequence; 0 for none.", "0", {0, 100},
           {"router_aux_loss_coef", "aux_loss_alpha", "seq_aux_loss_coeff"}),
      real("train.moe_z_loss_coeff", "Of the loss that keeps logits of routers small; 0 for none.",
           "0", {0, 100}, {"router_z_loss_coef"}),
      real("train.moe_bias_update_rate",
           "How much a step adds to the selection bias of an expert that met fewer tokens than the "
           "mean, and takes from one that met more.",
           "1e-3", {0, 100}, {"moe_router_bias_update_rate", "bias_update_speed"}),
      {.path = "train.tp_overlap",
       .type = FieldType::kBool,
       .doc = "Compute gradients of weights while collectives of tensor ranks are under way.",
       .initial = "true",
       .known_as = {"tp_comm_overlap"}},
      whole("train.threads",
            "Threads of a rank that share the work of one operation (intra-op threads).", "1",
            {1, 1024}, {"num_threads", "intra_op_threads"}),
      real("train.op_deadline",
           "Seconds after which a collective, or a rank without a heartbeat, ends the run. The "
           "death of a rank ends it at once.",
           "600.0", {1, 1e6}, {"distributed_timeout", "timeout"}),
  };
}

std::vector<Field> device_fields() {
  return {{.path = "device.kind",
           .type = FieldType::kChoice,
           .doc = "What ranks compute on, one device each. `cuda` needs the build `cuda` and "
                  "processes, and has not run on a GPU yet (docs/gpu.md).",
           .initial = "\"cpu\"",
           .choices = {"cpu", "cuda"},
           .renamed = {{"gpu", "cuda"}},
           .known_as = {"device", "device_type", "accelerator"}}};
}

std::vector<Field> evaluation_fields() {
  return {
      whole("train.eval_interval",
            "Steps between two evaluations on the validation split; the last step is followed by "
            "one too. 0 for none.",
            "0", {0, kMaxCount}, {"eval_steps", "val_interval"}),
      whole("train.eval_samples",
            "Sequences that an evaluation looks at, always the same. Without it, global_batch.", "",
            {1, kMaxCount}, {"eval_iters"}, "sequences"),
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
          rate_fields(), step_fields(), evaluation_fields(), device_fields(), data_fields()})
      for (Field& field : part) fields.push_back(std::move(field));
    return config::FieldTable("run", std::move(fields));
  }();
  return table;
}

}  // namespace lockstep::spec
