// A llama small enough to train in milliseconds, with grouped queries and an odd number of layers
// per stage, that two tensor ranks can share; its jobs, and what they do as text.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/base/units.h"
#include "lockstep/spec/spec.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/train/job.h"
#include "lockstep/verify/image.h"

namespace lockstep::train {

inline spec::Spec tiny_spec(bool tied, DType dtype) {
  tensor::request_strict_kernels();
  tensor::install_counting_allocator();
  spec::Spec spec;
  spec.model.name = "tiny";
  spec.model.layers = 5;
  spec.model.hidden = 64;
  spec.model.heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_dim = 16;
  spec.model.ffn = 96;
  spec.model.vocab = 98;
  spec.model.max_positions = 64;
  spec.model.tied = tied;
  spec.batch = {16, 16, 1};
  spec.train = {3, {.peak = 1e-2}, 0.1, 1.0, 1234, dtype};
  return spec;
}

// `spec` under the layout of that name, the batch cut as it says.
inline Job job_of(spec::Spec spec, const std::string& layout) {
  spec.layout = spec::parse_layout(layout).value();
  spec.batch = cut(spec.batch, spec.layout);
  return make_job(spec).value();
}

// Loss, gradient norm and state after every step, bit for bit.
inline std::string bits_of(const std::vector<verify::StepImage>& images) {
  std::string text;
  for (const verify::StepImage& image : images)
    text += strf("%a %a ", image.loss, image.grad_norm) + to_hex(image.digest()) + "\n";
  return text;
}

}  // namespace lockstep::train
