// What one rank computes of a dump's step: its own passes, in f64 or a narrower type, from the
// dump's weights and batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/audit/dump.h"
#include "lockstep/audit/step.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"

namespace lockstep::audit {

// Refers to the dump. One thread at a time.
class Reference {
 public:
  explicit Reference(const Dump& dump) : dump_(dump) {}

  // Of all samples. LS0207 and others where the model does not run here.
  Result<Step> step(DType dtype) const;
  // Of each sample alone; of one without labels zeros.
  Result<std::vector<Step>> samples(DType dtype) const;
  // With labels moved by `by` tokens to the left; nothing when no label is left.
  Result<std::optional<Step>> with_labels_moved(DType dtype, int by) const;
  // Of a tied model: as if embedding and head had weights of their own, so that the gradient of
  // each end is seen alone; the head's is lm_head.weight. Nothing where the model is not tied.
  Result<std::optional<Step>> untied(DType dtype) const;
  // What each of `tp` sequence-parallel ranks finds of the parameters that all of them hold, before
  // it is summed. Empty where the model or its sequences cannot be cut so.
  std::vector<Gradients> shares(DType dtype, std::int64_t tp) const;

 private:
  const Dump& dump_;
};

}  // namespace lockstep::audit
