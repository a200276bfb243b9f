#include "lockstep/train/job.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/model/user_model.h"
#include "lockstep/nn/wide_product.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/text.h"
#include "lockstep/program/validate.h"
#include "lockstep/spec/identity.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/step.h"
#include "lockstep/spec/train_rules.h"

namespace lockstep::train {

runtime::TensorWorkspace::Groups Job::adamw(std::int64_t step) const {
  const spec::Train& train = spec.train;
  const optim::AdamW settings = {.lr = train.lr.at(step, train.steps),
                                 .beta1 = train.beta1,
                                 .beta2 = train.beta2,
                                 .eps = train.eps,
                                 .weight_decay = train.weight_decay};
  runtime::TensorWorkspace::Groups groups = {settings, settings, train.moe_bias_update_rate};
  if (!train.decay_embeddings) groups.embeddings.weight_decay = 0;
  return groups;
}

spec::StepBatch Job::batch(std::int64_t step) const {
  return spec::batch_of_step(spec.batch.ramp, spec.batch.global_batch, step);
}

runtime::Place Job::place(Rank rank) const {
  using mesh::Axis;
  runtime::Place place;
  place.coord = mesh.coord(rank, Axis::kPipeline);
  place.shards = mesh.degree(mesh::kDenseShard);
  place.shard = mesh.coord(rank, mesh::kDenseShard).value;
  place.replica = mesh.coord(rank, Axis::kDataReplicate).value;
  place.experts = {mesh.degree(Axis::kExpertDataShard),
                   mesh.coord(rank, Axis::kExpertDataShard).value,
                   mesh.coord(rank, Axis::kExpertDataReplicate).value};
  place.sample_ranks = spec.layout.degrees.dp;
  place.context = {mesh.degree(Axis::kContext), mesh.coord(rank, Axis::kContext).value};
  place.tensor = {mesh.degree(Axis::kTensor), mesh.coord(rank, Axis::kTensor).value,
                  mesh.degree(Axis::kExpert), mesh.coord(rank, Axis::kExpert).value,
                  mesh.degree(Axis::kExpertTensor)};
  return place;
}

// Text, so that it does not depend on how structs lie in memory.
Hash128 Job::digest() const {
  std::string text = join_parts(to_hex(program_hash(program)), "\n", to_text(spec.layout), "\n");
  for (const auto& facts :
       {model::model_facts(model.config), spec::identity(spec, &spec::IdentityKey::path)})
    for (const auto& [name, value] : facts) text += join_parts(name, " ", value, "\n");
  return xxh3_128(text);
}

namespace {

spec::Spec sized(spec::Spec spec, std::int64_t sequences) {
  spec.batch.global_batch = sequences;
  spec.batch.ramp = {};
  spec.train.eval_interval = 0;
  spec.layout.microbatches.reset();  // it said how the whole batch is cut, which is done
  return spec;
}

void check_program(const program::Program& program, DeviceKind device) {
  const auto problems = program::validate(program, 1);
  LS_CHECK(problems.empty(),
           "lowering made an invalid program: ", problems.empty() ? "" : to_text(problems[0]));
  const auto proof = program::check_deadlock(program, device == DeviceKind::kCpu
                                                          ? program::Transport::kTagged
                                                          : program::Transport::kFifoPerDirection);
  LS_CHECK(proof.ok(), proof.ok() ? "" : proof.error().message);
}

Result<std::optional<program::Program>> evaluation_of(const spec::Spec& spec,
                                                      program::StepShape step) {
  if (spec.train.eval_interval == 0) return std::optional<program::Program>();
  const std::int64_t dp = spec.layout.degrees.dp;
  const auto refused = spec::against_evaluation(spec.train.eval_samples, dp, spec.batch);
  if (!refused.empty()) return refused[0].error;
  step.shape.microbatches =
      static_cast<int>(spec.train.eval_samples / (dp * spec.batch.microbatch));
  program::Program program = LS_TRY(program::lower_forward_only(std::move(step)));
  check_program(program, spec.device);
  return std::optional(std::move(program));
}

}  // namespace

Job with_batch(const Job& job, std::int64_t sequences) {
  return make_job(sized(job.spec, sequences)).value();
}

Job as_evaluation(const Job& job) {
  LS_CHECK(job.evaluation, "a job that does not evaluate");
  Job made = job;
  made.program = *std::move(made.evaluation);
  made.evaluation.reset();
  return made;
}

Result<Job> make_job(const spec::Spec& spec) {
  const auto refused = spec::legal(spec.model, spec.layout, spec.batch, spec.train.dtype);
  if (!refused.empty()) return refused[0];
  if (!spec.batch.ramp.is_none())
    for (const std::int64_t size : spec.batch.ramp.sizes(spec.batch.global_batch))
      if (const Result<Job> part = make_job(sized(spec, size)); !part.ok()) return part.error();
  const auto noise = spec::against_noise_scale(spec.train.noise_scale, spec.model, spec.batch);
  if (!noise.empty()) return noise[0].error;
  const auto shared =
      spec::against_expert_parallelism(spec.layout.degrees, spec.train.noise_scale, spec.model);
  if (!shared.empty()) return shared[0].error;
  const auto losses = spec::against_router_losses(spec.train.moe_aux_loss_coeff,
                                                  spec.train.moe_z_loss_coeff, spec.model);
  if (!losses.empty()) return losses[0].error;
  if (spec.train.dtype == DType::kBF16 && spec.device == DeviceKind::kCpu &&
      !nn::has_wide_product())
    return Error{Code::kUnsuitableEnvironment,
                 "dtype = bf16 needs a product of bf16 into f32, which this LibTorch lacks",
                 "use a LibTorch with MKL, or dtype = f32"};
  if (spec.train.check_interval > 0 && spec.device != DeviceKind::kCpu)
    return Error{Code::kConflict,
                 join_parts("train.check_interval = ", spec.train.check_interval,
                            " checks state in the memory of hosts, and device.kind is cuda"),
                 "set train.check_interval = 0"};
  model::Model model = LS_TRY(model::describe(spec.model));
  mesh::Mesh mesh = LS_TRY(mesh::Mesh::create(spec.layout.degrees, spec.layout.order));
  program::StepShape step = spec::step_shape(model, spec.layout, spec.batch);
  step.noise = spec.train.noise_scale > 0;
  step.checks = spec.train.check_interval > 0;
  program::Program program = LS_TRY(spec::program_for(spec.layout, step));
  check_program(program, spec.device);
  std::optional<program::Program> evaluation = LS_TRY(evaluation_of(spec, program.step));

  Job job{spec, std::move(model), std::move(mesh), std::move(program), {}, std::move(evaluation)};
  job.workspace.unit = spec::step_sizes(spec).unit;
  job.workspace.seed = static_cast<std::uint64_t>(spec.train.seed);
  job.workspace.clip = spec.train.clip;
  return job;
}

}  // namespace lockstep::train
