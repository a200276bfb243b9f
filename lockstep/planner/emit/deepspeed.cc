// Keys of DeepSpeed's JSON: runtime/config.py, runtime/zero/config.py, runtime/tensor_parallel and
// module_inject/auto_ep_config.py. The model is a module of the user's program.
#include "lockstep/base/json.h"
#include "lockstep/planner/emit/script.h"

namespace lockstep::planner {
namespace {

Json config_of(const Job& job) {
  const spec::Layout& l = job.layout;
  const mesh::Degrees& d = l.degrees;
  Json zero = Json::object({{"stage", l.zero}});
  if (l.zero >= 2) zero.set("overlap_comm", true);
  Json json = Json::object({{"train_batch_size", job.batch.global_batch},
                            {"train_micro_batch_size_per_gpu", job.batch.microbatch},
                            {"gradient_accumulation_steps", *l.microbatches},
                            {"bf16", Json::object({{"enabled", true}})},
                            {"zero_optimization", std::move(zero)}});
  if (d.tp > 1) json.set("tensor_parallel", Json::object({{"autotp_size", d.tp}}));
  if (d.cp > 1) json.set("sequence_parallel_size", d.cp);
  if (d.ep > 1)
    json.set("expert_parallel", Json::object({{"enabled", true}, {"autoep_size", d.ep}}));
  if (d.pp > 1) json.set("pipeline", Json::object({{"stages", d.pp}}));
  if (l.recompute.drop.block)
    json.set("activation_checkpointing", Json::object({{"number_checkpoints", job.model.layers}}));
  return json;
}

}  // namespace

Result<Script> emit_deepspeed(const Framework& framework, const Job& job) {
  const mesh::Degrees& d = job.layout.degrees;
  Script script{
      join_parts(head_of(framework, job, "one node", {"HOSTFILE", "TRAIN_SCRIPT"}),
                 "\ncat > ds_config.json <<'END'\n", config_of(job).dump(2),
                 "\nEND\n\ndeepspeed --hostfile \"$HOSTFILE\" --num_nodes \"$NNODES\" --num_gpus "
                 "\"$GPUS_PER_NODE\" \\\n  \"$TRAIN_SCRIPT\" --deepspeed --deepspeed_config "
                 "ds_config.json\n")};
  const auto note = [&](std::string what) { script.notes.push_back(std::move(what)); };
  note(join_parts("TRAIN_SCRIPT makes the model (", job.model.layers, " layers of width ",
                  job.model.hidden, "), its optimizer and a loader of sequences of ", job.batch.seq,
                  " tokens"));
  if (d.pp > 1)
    note(join_parts("the model has to be a PipelineModule of num_stages=", d.pp, " with ",
                    job.model.layers / d.pp, " layers each"));
  if (job.layout.recompute.drop.block)
    note("the model has to call deepspeed.checkpointing for every block");
  return script;
}

}  // namespace lockstep::planner
