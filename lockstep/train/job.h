// Everything about a training job that all of its ranks share and that does not change while it
// runs. Plain data; any thread may read it.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/program/program.h"
#include "lockstep/runtime/tensor_workspace.h"
#include "lockstep/spec/spec.h"

namespace lockstep::train {

struct Job {
  spec::Spec spec;
  model::Model model;
  mesh::Mesh mesh;
  program::Program program;
  runtime::WorkspaceSettings workspace;
  // Forward passes alone over spec.train.eval_samples; absent: the job does not evaluate.
  std::optional<program::Program> evaluation = {};

  // Optimizer settings of step number `step`, from 0.
  runtime::TensorWorkspace::Groups adamw(std::int64_t step) const;
  // The samples that it takes.
  spec::StepBatch batch(std::int64_t step) const;
  // The same for every rank of a job and different for jobs that would train differently.
  Hash128 digest() const;
  // The mesh's place of a rank, as its workspace needs it.
  runtime::Place place(Rank rank) const;
};

// Refuses what `legal` refuses, with the first reason, for every size of a batch that grows. The
// program is that of the whole batch.
Result<Job> make_job(const spec::Spec& spec);

// The job whose step is this one's evaluation: what that runs and costs. REQUIRES: job.evaluation.
Job as_evaluation(const Job& job);

// The same job with steps of `sequences` samples and no ramp: what a step of that size runs and
// costs.
// REQUIRES: one of the sizes of the job's batch.
Job with_batch(const Job& job, std::int64_t sequences);

}  // namespace lockstep::train
