// Names of keys: torchtitan, torchtitan/config; its mesh lays pp outside dp, FSDP2 is ZeRO-3 or,
// without resharding after the forward pass, ZeRO-2, and ranks of a sequence gather keys and values
// (distributed/context_parallel.py).
#include "lockstep/base/check.h"
#include "lockstep/planner/emit/nearest_layout.h"

namespace lockstep::planner {
namespace {

std::string schedule_word(const std::string& name) {
  if (name == "gpipe") return "GPipe";
  if (name == "interleaved") return "Interleaved1F1B";
  if (name == "interleaved-zb") return "InterleavedZeroBubble";
  if (name == "zbv") return "ZBVZeroBubble";
  if (name == "dualpipe-v") return "DualPipeV";
  return name == "1f1b" ? "1F1B" : "";
}

// Layers of a stage, rounded up; 0 when that leads to another number of chunks.
std::int64_t layers_per_stage(std::int64_t layers, std::int64_t pp, std::int64_t chunks) {
  const std::int64_t each = (layers + pp * chunks - 1) / (pp * chunks);
  const std::int64_t stages = (layers + each - 1) / each;
  return (stages + pp - 1) / pp == chunks ? each : 0;
}

void choose_schedule_of_torch(NearestLayout& near, std::int64_t layers) {
  const spec::Layout& l = near.layout();
  near.use_even_stages();
  if (!near.has_pipeline()) return;
  if (schedule_word(l.schedule).empty()) {
    const bool is_v = l.schedule.starts_with("v-");
    near.use_schedule(is_v ? "zbv" : "1f1b", is_v ? 2 : 1);
  }
  if (layers_per_stage(layers, l.degrees.pp, l.chunks) == 0) near.use_schedule("1f1b", 1);
  if (layers_per_stage(layers, l.degrees.pp, l.chunks) == 0)
    near.note(join_parts(layers, " layers on ", l.degrees.pp * l.chunks,
                         " stages need module_fqns_per_model_part, which says where each lies"));
}

std::string shard_lines(const NearestLayout& near) {
  const spec::Layout& l = near.layout();
  const std::int64_t dp = l.degrees.dp, shard = l.zero == 0 ? 1 : l.degrees.dp_shard.value_or(dp);
  return join_parts("data_parallel_replicate_degree = ", dp / shard, "\n",
                    "data_parallel_shard_degree = ", shard, "\n", "fsdp_reshard_after_forward = \"",
                    l.zero == 3 ? "always" : "never", "\"\n");
}

}  // namespace

Emitted emit_torchtitan(const Job& job) {
  NearestLayout near(job);
  choose_schedule_of_torch(near, job.model.layers);
  if (near.layout().zero == 1) near.use_zero(near.layout().degrees.dp == 1 ? 0 : 2, "");
  near.use_data_inside();
  near.use_etp_one();
  near.use_context(cost::CpMethod::kGather, "");
  const spec::Recompute& asked = near.layout().recompute;
  near.use_recompute(asked == spec::kKeepAll ? spec::kKeepAll : spec::kWholeBlock);
  near.drop_own_settings();
  const spec::Layout& l = near.layout();
  const mesh::Degrees& d = l.degrees;
  std::string text = join_parts(
      "[parallelism]\n", shard_lines(near), "tensor_parallel_degree = ", d.tp, "\n",
      "enable_sequence_parallel = ", l.sp ? "true" : "false", "\n",
      "context_parallel_degree = ", d.cp, "\n", "pipeline_parallel_degree = ", d.pp, "\n");
  if (near.has_pipeline()) {
    text += join_parts("pipeline_parallel_schedule = \"", schedule_word(l.schedule), "\"\n");
    if (const auto each = layers_per_stage(job.model.layers, d.pp, l.chunks); each > 0)
      text += join_parts("pipeline_parallel_layers_per_stage = ", each, "\n");
  }
  if (job.model.moe.experts > 0) text += join_parts("expert_parallel_degree = ", d.ep, "\n");
  text +=
      join_parts("\n[training]\nmax_context_length = ", job.batch.seq, "\n",
                 "num_tokens_per_microbatch_per_dp_rank = ", job.batch.microbatch * job.batch.seq,
                 "\n", "num_tokens_per_train_step = ", job.batch.global_batch * job.batch.seq,
                 "\nmixed_precision_param = \"bfloat16\"\n\n[activation_checkpoint]\nmode = \"",
                 l.recompute.block ? "full" : "none", "\"\n");
  return near.take(std::move(text));
}

}  // namespace lockstep::planner
