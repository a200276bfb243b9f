// `lockstep train --sample`: what the model makes of a prompt while it is trained.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/generate/tokenizer.h"
#include "cli/train/torch/log.h"
#include "cli/train/torch/sample_request.h"
#include "cli/verb.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/spec/spec.h"
#include "lockstep/train/job.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

// Nothing without --sample. A text is what `lockstep generate CHECKPOINT --max-tokens 100` makes.
// Refuses a run whose tokens are no bytes, a prompt without room behind it, and --sample of which
// nobody would see anything.
Result<std::optional<SampleRequest>> read_samples(const Args& args, const spec::Spec& spec,
                                                  bool is_json);

// What --sample adds to a run, and what is told of it.
void add_samples(const train::Job& job, SampleRequest sample, TrainOptions& options);

// Of rank 0. Generates on its own thread while the others wait for the next step; what goes wrong
// is told and ends nothing. Texts go to the log and into samples.jsonl of `folder`, if any.
class Samples final : public train::RunObserver {
 public:
  Samples(const model::Model& model, SampleRequest sample, std::string folder, bool resumes,
          TrainLog& log);
  void begins(const train::Progress& done, bool continues) override;
  void weights(std::int64_t step, train::WholeWeights& weights) override;

 private:
  Result<std::string> generated(train::WholeWeights& weights);

  const model::Model& model_;
  const SampleRequest sample_;
  const std::string folder_;
  const bool resumes_;
  TrainLog& log_;
  const std::unique_ptr<Tokenizer> tokenizer_ = byte_tokenizer();
  std::optional<metrics::MetricsFile> file_;
};

}  // namespace lockstep::cli
