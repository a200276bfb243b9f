// Names of keys: DeepSpeed, deepspeed/runtime/config.py and zero/config.py. Its pipelines run 1f1b
// with ZeRO-1 at most, its topology lays pp outside dp, and sequences are divided by Ulysses.
#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/planner/emit/nearest_layout.h"

namespace lockstep::planner {
namespace {

void choose_of_deepspeed(NearestLayout& near) {
  near.use_even_stages();
  spec::Layout& l = near.layout();
  if (near.has_pipeline()) near.use_schedule("1f1b", 1);
  if (near.has_pipeline() && l.zero > 1) near.use_zero(1, " under a pipeline");
  if (l.zero != 3) near.use_whole_shards();  // MiCS shards in groups, stage 3 alone
  near.use_data_inside();
  near.use_etp_one();
  near.use_context(cost::CpMethod::kUlysses, "");
  near.use_recompute(l.recompute == spec::kKeepAll ? spec::kKeepAll : spec::kWholeBlock);
  near.drop_own_settings();
  if (l.degrees.tp > 1 && l.sp) {
    near.miss("sequence parallelism over tp: norms and residuals are whole on every rank instead");
    l.sp = false;
  }
}

}  // namespace

Emitted emit_deepspeed(const Job& job) {
  NearestLayout near(job);
  choose_of_deepspeed(near);
  const spec::Layout& l = near.layout();
  const mesh::Degrees& d = l.degrees;
  Json zero = Json::object({{"stage", l.zero}, {"overlap_comm", true}});
  if (d.dp_shard) zero.set("mics_shard_size", *d.dp_shard);
  Json json = Json::object({{"train_batch_size", job.batch.global_batch},
                            {"train_micro_batch_size_per_gpu", job.batch.microbatch},
                            {"gradient_accumulation_steps", *l.microbatches},
                            {"bf16", Json::object({{"enabled", true}})},
                            {"zero_optimization", std::move(zero)}});
  if (d.tp > 1) json.set("tensor_parallel", Json::object({{"autotp_size", d.tp}}));
  if (d.cp > 1) {
    json.set("sequence_parallel_size", d.cp);
    if (job.model.heads % (d.tp * d.cp) != 0)
      near.note(
          join_parts(job.model.heads, " heads are dealt unevenly to ", d.tp * d.cp, " ranks"));
  }
  if (d.ep > 1) json.set("expert_parallel", Json::object({{"autoep_size", d.ep}}));
  if (near.has_pipeline()) {
    json.set("pipeline", Json::object({{"stages", d.pp}}));
    near.note(join_parts("the model has to be a PipelineModule of num_stages=", d.pp));
  }
  if (l.recompute.block) {
    json.set("activation_checkpointing", Json::object({{"number_checkpoints", job.model.layers}}));
    near.note("the model has to call deepspeed.checkpointing for every block");
  }
  near.note(join_parts("sequences of ", job.batch.seq, " tokens are the data loader's"));
  return near.take(json.dump(2) + "\n");
}

}  // namespace lockstep::planner
