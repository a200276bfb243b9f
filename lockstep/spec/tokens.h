// What a run reads, from its files.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/base/result.h"
#include "lockstep/data/corpus_tokens.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {

// Samples that the steps of the run take together. Megatron's order of samples depends on it: a run
// that is made longer keeps its order as long as data::CorpusTokens::digest() stays the same.
std::int64_t num_samples(const Spec& spec);

// The training split, num_samples() of it. REQUIRES: spec.data.files is not empty.
Result<std::unique_ptr<data::CorpusTokens>> open_training(const Spec& spec);

// The validation split: `samples` of it, or with 0 as many as one pass over it has. Evaluations
// that are to be comparable read the same samples, from 0 on, each time. REQUIRES: as above.
Result<std::unique_ptr<data::CorpusTokens>> open_validation(const Spec& spec, std::int64_t samples);

}  // namespace lockstep::spec
