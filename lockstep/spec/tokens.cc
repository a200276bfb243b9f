#include "lockstep/spec/tokens.h"

#include "lockstep/base/check.h"

namespace lockstep::spec {
namespace {

data::Demand demand_of(const Spec& spec, std::int64_t samples) {
  LS_CHECK(!spec.data.files.empty(), "the run names no data");
  return {.seq = spec.batch.seq, .samples = samples, .vocab = spec.model.vocab};
}

}  // namespace

std::int64_t num_samples(const Spec& spec) {
  return batch_of_step(spec.batch.ramp, spec.batch.global_batch, spec.train.steps).first;
}

Result<std::unique_ptr<data::CorpusTokens>> open_training(const Spec& spec) {
  return data::CorpusTokens::open(spec.data, data::Split::kTrain,
                                  demand_of(spec, num_samples(spec)));
}

Result<std::unique_ptr<data::CorpusTokens>> open_validation(const Spec& spec,
                                                            std::int64_t samples) {
  return data::CorpusTokens::open(spec.data, data::Split::kValidation, demand_of(spec, samples));
}

}  // namespace lockstep::spec
