#include "lockstep/train/job.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/plan/evaluation.h"
#include "lockstep/plan/legal.h"
#include "lockstep/plan/noise_scale.h"
#include "lockstep/plan/step.h"
#include "lockstep/schedule/deadlock.h"
#include "lockstep/schedule/lower.h"
#include "lockstep/schedule/text.h"
#include "lockstep/schedule/validate.h"

namespace lockstep::train {

runtime::TensorWorkspace::Groups Job::adamw(std::int64_t step) const {
  const plan::Train& train = spec.train;
  optim::AdamW settings;
  settings.weight_decay = train.weight_decay;
  settings.lr = train.lr.at(step, train.steps);
  runtime::TensorWorkspace::Groups groups = {settings, settings};
  if (!train.decay_embeddings) groups.embeddings.weight_decay = 0;
  return groups;
}

plan::StepBatch Job::batch(std::int64_t step) const {
  return plan::batch_of_step(spec.batch.ramp, spec.batch.global_batch, step);
}

runtime::Place Job::place(Rank rank) const {
  using mesh::Axis;
  runtime::Place place;
  place.coord = mesh.coord(rank, Axis::kPipeline);
  place.shards = mesh.degree(mesh::kDenseShard);
  place.shard = mesh.coord(rank, mesh::kDenseShard).value;
  place.replica = mesh.coord(rank, Axis::kDataReplicate).value;
  place.tensor = {mesh.degree(Axis::kTensor), mesh.coord(rank, Axis::kTensor).value};
  return place;
}

// Everything that changes what is computed; text, so that it does not depend on how structs lie in
// memory.
Hash128 Job::digest() const {
  const plan::Train& train = spec.train;
  const arch::ModelConfig& config = model.config;
  const arch::RopeScaling& scaling = config.rope_scaling;
  const bool falls = train.lr.decay != plan::Decay::kConstant;  // else a run may be made longer
  return xxh3_128(join_parts(
      to_hex(program_hash(program)), " ", config.layers, " ", config.hidden, " ", config.heads, " ",
      config.kv_heads, " ", config.head_dim, " ", config.ffn, " ", config.vocab, " ",
      config.max_positions, " ", config.tied, " ", to_text(config.family), " ",
      to_text(config.norm), " ", config.qkv_bias, " ", config.linear_bias, " ",
      to_text(config.qk_norm), " ",
      strf("%a %a %a ", config.norm_eps, config.rope_theta, config.init_std),
      strf("%a %a %a ", scaling.factor, scaling.low_freq, scaling.high_freq),
      scaling.original_positions, " ", to_text(spec.layout), " ", spec.batch.seq, " ",
      spec.batch.global_batch, " ", spec.batch.microbatch, " ", to_text(train.dtype), " ",
      train.seed, " ", falls ? train.steps : 0, " ", train.lr.warmup, " ",
      plan::to_text(train.lr.decay), " ", train.lr.decay_steps,
      strf(" %a %a %a %a ", train.lr.peak, train.lr.end, train.weight_decay, train.clip),
      train.decay_embeddings, " ", plan::to_text(train.on_nonfinite), " ", train.eval_interval, " ",
      train.eval_interval > 0 ? train.eval_samples : 0, " ", spec.batch.ramp.start, " ",
      spec.batch.ramp.increment, " ", spec.batch.ramp.samples));
}

namespace {

plan::Spec sized(plan::Spec spec, std::int64_t sequences) {
  spec.batch.global_batch = sequences;
  spec.batch.ramp = {};
  spec.train.eval_interval = 0;
  spec.layout.microbatches.reset();  // it said how the whole batch is cut, which is done
  return spec;
}

}  // namespace

namespace {

void check_program(const schedule::Program& program) {
  const auto problems = schedule::validate(program, 1);
  LS_CHECK(problems.empty(),
           "lowering made an invalid program: ", problems.empty() ? "" : to_text(problems[0]));
  const auto proof = schedule::check_deadlock(program, schedule::Transport::kTagged);
  LS_CHECK(proof.ok(), proof.ok() ? "" : proof.error().message);
}

Result<std::optional<schedule::Program>> evaluation_of(const plan::Spec& spec,
                                                       schedule::StepShape step) {
  if (spec.train.eval_interval == 0) return std::optional<schedule::Program>();
  const std::int64_t dp = spec.layout.degrees.dp;
  const auto refused = plan::against_evaluation(spec.train.eval_samples, dp, spec.batch);
  if (!refused.empty()) return refused[0].error;
  step.shape.microbatches =
      static_cast<int>(spec.train.eval_samples / (dp * spec.batch.microbatch));
  Result<schedule::Program> program = schedule::lower_forward_only(std::move(step));
  if (!program.ok()) return program.error();
  check_program(*program);
  return std::optional(*std::move(program));
}

}  // namespace

Job with_batch(const Job& job, std::int64_t sequences) {
  Result<Job> made = make_job(sized(job.spec, sequences));
  LS_CHECK(made.ok(), made.ok() ? "" : made.error().message);
  return *std::move(made);
}

Job as_evaluation(const Job& job) {
  LS_CHECK(job.evaluation, "a job that does not evaluate");
  Job made = job;
  made.program = *std::move(made.evaluation);
  made.evaluation.reset();
  return made;
}

Result<Job> make_job(const plan::Spec& spec) {
  if (!spec.batch.ramp.is_none() &&
      plan::legal(spec.model, spec.layout, spec.batch, spec.train.dtype).empty())
    for (const std::int64_t size : spec.batch.ramp.sizes(spec.batch.global_batch))
      if (const Result<Job> part = make_job(sized(spec, size)); !part.ok()) return part.error();
  const auto refused = plan::legal(spec.model, spec.layout, spec.batch, spec.train.dtype);
  if (!refused.empty()) return refused[0];
  const auto noise = plan::against_noise_scale(spec.train.noise_scale, spec.model, spec.batch);
  if (!noise.empty()) return noise[0].error;
  if (spec.train.dtype == DType::kBF16 && !nn::has_wide_product())
    return Error{Code::kUnsuitableEnvironment,
                 "dtype = bf16 needs a product of bf16 into f32, which this LibTorch lacks",
                 "use a LibTorch with MKL, or dtype = f32"};
  Result<arch::Model> model = arch::describe(spec.model);
  if (!model.ok()) return model.error();
  Result<mesh::Mesh> mesh = mesh::Mesh::create(spec.layout.degrees, spec.layout.order);
  if (!mesh.ok()) return mesh.error();
  schedule::StepShape step = plan::step_shape(*model, spec.layout, spec.batch);
  step.noise = spec.train.noise_scale > 0;
  Result<schedule::Program> program = plan::program_for(spec.layout, step);
  if (!program.ok()) return program.error();
  check_program(*program);
  Result<std::optional<schedule::Program>> evaluation = evaluation_of(spec, program->step);
  if (!evaluation.ok()) return evaluation.error();

  Job job{spec, *std::move(model),     *std::move(mesh), *std::move(program),
          {},   *std::move(evaluation)};
  job.workspace.dtype = spec.train.dtype;
  job.workspace.microbatch = spec.batch.microbatch;
  job.workspace.seq = spec.batch.seq;
  job.workspace.drop = {spec.layout.recompute.attn_normed, spec.layout.recompute.mlp_normed,
                        spec.layout.recompute.product};
  job.workspace.seed = static_cast<std::uint64_t>(spec.train.seed);
  job.workspace.clip = spec.train.clip;
  return job;
}

}  // namespace lockstep::train
