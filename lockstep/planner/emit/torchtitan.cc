// Flags are fields of torchtitan's configuration (config/configs.py); what has none is set where
// its own registries set it, in a module that --module names.
#include <algorithm>
#include <array>

#include "lockstep/model/catalog.h"
#include "lockstep/planner/emit/script.h"
#include "lockstep/spec/step.h"

namespace lockstep::planner {
namespace {

// A model of ours, and theirs: a folder of torchtitan/models, a flavor of it, and a configuration
// of its registry that the rest is taken from.
struct Flavor {
  std::string_view ours, module, flavor, base;
};
constexpr std::array kFlavors = {
    Flavor{"llama3-8b", "llama3", "8B", "llama3_8b"},
    Flavor{"llama3-70b", "llama3", "70B", "llama3_70b"},
    Flavor{"llama3.1-8b", "llama3", "8B", "llama3_8b"},
    Flavor{"llama3.1-70b", "llama3", "70B", "llama3_70b"},
    Flavor{"llama3-405b", "llama3", "405B", "llama3_405b"},
    Flavor{"llama3.2-1b", "llama3", "1B", "llama3_8b"},
    Flavor{"llama3.2-3b", "llama3", "3B", "llama3_8b"},
    Flavor{"qwen3-0.6b", "qwen3", "0.6B", "qwen3_0_6b"},
    Flavor{"qwen3-1.7b", "qwen3", "1.7B", "qwen3_1_7b"},
    Flavor{"qwen3-4b", "qwen3", "4B", "qwen3_1_7b"},
    Flavor{"qwen3-8b", "qwen3", "8B", "qwen3_14b"},
    Flavor{"qwen3-14b", "qwen3", "14B", "qwen3_14b"},
    Flavor{"qwen3-32b", "qwen3", "32B", "qwen3_32b"},
    Flavor{"qwen3-30b-a3b", "qwen3", "30B-A3B", "qwen3_30b_a3b"},
    Flavor{"qwen3-235b-a22b", "qwen3", "235B-A22B", "qwen3_30b_a3b"},
    Flavor{"deepseek-v2-lite", "deepseek_v3", "16B", "deepseek_v3_16b"},
    Flavor{"deepseek-v2", "deepseek_v3", "236B", "deepseek_v3_16b"},
    Flavor{"deepseek-v3", "deepseek_v3", "671B", "deepseek_v3_671b"}};

// Of the same numbers, whatever its name.
const Flavor* flavor_of(const model::ModelConfig& asked) {
  for (const Flavor& one : kFlavors) {
    model::ModelConfig known = model::find(one.ours)->config;
    known.name = asked.name;
    if (known == asked) return &one;
  }
  return nullptr;
}

std::string_view schedule_word(const std::string& name) {
  if (name == "gpipe") return "GPipe";
  return name == "interleaved" ? "Interleaved1F1B" : "1F1B";
}

std::string converters(const Job& job) {
  if (!job.fp8) return "";
  const bool has_experts = job.model.moe.experts > 0;
  return join_parts(
      ",\n        converters=[\n            Float8LinearConverter.Config(filter_fqns=[\"lm_head\"",
      has_experts ? ", \"router.gate\"" : "", "], model_compile_enabled=True),\n",
      has_experts
          ? "            Float8GroupedExpertsConverter.Config(model_compile_enabled=True),\n"
          : "",
      "        ],\n    ");
}

// Layers of each stage by name; the embedding begins the first, norm and head end the last.
std::string stage_lines(const Job& job) {
  if (job.layout.degrees.pp == 1) return "";
  std::string counts;
  for (const int layers : spec::stage_layers(job.layout, job.model.layers))
    counts += join_parts(counts.empty() ? "" : ", ", layers);
  return join_parts(
      "    names = iter(f\"layers.{i}\" for i in range(", job.model.layers, "))\n    stages = [",
      counts,
      "]\n    parts = [[next(names) for _ in range(layers)] for layers in stages]\n"
      "    parts[0].insert(0, \"tok_embeddings\")\n    parts[-1] += [\"norm\", \"lm_head\"]\n"
      "    config.parallelism.module_fqns_per_model_part = parts\n");
}

std::string module_text(const Job& job, const Flavor& flavor) {
  const std::string models = join_parts("from torchtitan.models.", flavor.module);
  return join_parts(
      "import os\n\nfrom torchtitan.components.optimizer import default_adamw\n",
      job.fp8
          ? "from torchtitan.components.quantization import (\n    Float8GroupedExpertsConverter,"
            "\n    Float8LinearConverter,\n)\n"
          : "",
      "from torchtitan.distributed.activation_checkpoint import FullAC\n"
      "from torchtitan.models.common.config_utils import decoder_vocab_size\n",
      models, " import model_registry\n", models, ".config_registry import ", flavor.base,
      "\n\n\ndef plan():\n    config = ", flavor.base,
      "()\n    config.model_spec = model_registry(\"", flavor.flavor, "\"", converters(job),
      ")\n    config.loss.loss_fn.global_vocab_size = decoder_vocab_size(config.model_spec)\n"
      "    config.optimizer = default_adamw(lr=float(os.environ[\"LR\"]))\n"
      "    config.activation_checkpoint = ",
      job.layout.recompute.drop.block ? "FullAC.Config()" : "None", "\n", stage_lines(job),
      "    return config\n");
}

void add_parallelism(const Job& job, Flags& flags) {
  const spec::Layout& l = job.layout;
  const mesh::Degrees& d = l.degrees;
  const std::int64_t shard = d.dp_shard.value_or(d.dp);
  flags.add("parallelism.data_parallel_replicate_degree", d.dp / shard);
  flags.add("parallelism.data_parallel_shard_degree", shard);
  flags.add("parallelism.fsdp_reshard_after_forward", l.zero == 3 ? "always" : "never");
  flags.add("parallelism.tensor_parallel_degree", d.tp);
  if (d.tp > 1) flags.add("compile.enable_async_tensor_parallel");
  flags.add("parallelism.context_parallel_degree", d.cp);
  if (job.model.moe.experts > 0) flags.add("parallelism.expert_parallel_degree", d.ep);
  flags.add("parallelism.pipeline_parallel_degree", d.pp);
  if (d.pp == 1) return;
  flags.add("parallelism.pipeline_parallel_schedule", schedule_word(l.schedule));
  flags.add("parallelism.pipeline_parallel_microbatch_size", job.batch.microbatch);
}

}  // namespace

Result<Script> emit_torchtitan(const Framework& framework, const Job& job) {
  const Flavor* flavor = flavor_of(job.model);
  if (flavor == nullptr)
    return no_words(framework, job, "the sizes",
                    "it has Llama 3, Qwen3 and DeepSeek in their published sizes; plan with --for "
                    "and add the model to it");
  const mesh::Degrees& d = job.layout.degrees;
  Flags flags;
  flags.add("compile.enable");
  flags.add("compile.components", "model,loss");
  add_parallelism(job, flags);
  // Graphs are made without a pipeline alone, and not around exchanges that wait for the host.
  if (d.pp > 1 || d.ep > 1) flags.add("training.disable_cuda_graphs");
  const std::int64_t in_a_call = d.pp > 1 ? *job.layout.microbatches : 1;
  flags.add("training.local_batch_size", job.batch.microbatch * in_a_call);
  flags.add("training.global_batch_size", job.batch.global_batch);
  flags.add("training.seq_len", job.batch.seq);
  flags.add("training.steps", "\"$STEPS\"");
  flags.add("hf_assets_path", "\"$HF_ASSETS\"");
  Script script{join_parts(head_of(framework, job, "every node",
                                   {"MASTER_ADDR", "NODE_RANK", "HF_ASSETS", "LR", "STEPS"}),
                           "\ncat > plan_config.py <<'END'\n", module_text(job, *flavor),
                           "END\nexport PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH}\n\n", kTorchrun,
                           " \\\n  -m torchtitan.train --module plan_config --config plan",
                           flags.take())};
  if (flavor->module == "llama3" && job.model.rope_scaling.factor == 1)
    script.notes.emplace_back("its flavors stretch rotary positions as Llama 3.1 does");
  script.notes.emplace_back("the dataset is that of its configuration, --dataloader.dataset");
  return script;
}

}  // namespace lockstep::planner
