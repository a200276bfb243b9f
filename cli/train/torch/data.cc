#include "cli/train/torch/data.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/data/corpus_tokens.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/spec/tokens.h"

namespace lockstep::cli {
namespace {

// The same made-up text, far behind all that steps take.
class FarTokens final : public data::TokenSource {
 public:
  explicit FarTokens(const data::MockTokens& tokens) : tokens_(tokens) {}

  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    tokens_.read(kFar + sample, tokens, labels);
  }
  std::int64_t valid_labels(std::int64_t sample, std::int64_t seq) const override {
    return tokens_.valid_labels(kFar + sample, seq);
  }

 private:
  static constexpr std::int64_t kFar = std::int64_t{1} << 30;
  data::MockTokens tokens_;
};

// "web and code: 12,345 tokens to train on; the run takes 20,480, in up to 2 passes".
std::string title_of(const spec::Spec& spec, const data::CorpusTokens& tokens) {
  std::vector<std::string> names;
  std::int64_t all = 0, passes = 0;
  for (const data::Part& part : tokens.parts()) {
    names.push_back(std::filesystem::path(part.file).filename().string());
    all += part.tokens;
    passes = std::max(passes, part.epochs);
  }
  constexpr std::size_t kMostNames = 4;
  return join_parts(names.size() > kMostNames
                        ? counted(static_cast<std::int64_t>(names.size()), "file")
                        : listed(names),
                    ": ", counted(all, "token"), " to train on; the run takes ",
                    with_commas(tokens.samples() * spec.batch.seq), ", in ",
                    names.size() > 1 ? "up to " : "", counted(passes, "pass"));
}

}  // namespace

TrainData made_up_data(const spec::Spec& spec) {
  const data::MockTokens tokens(static_cast<std::uint64_t>(spec.train.seed), spec.model.vocab,
                                /*ignore_some=*/false);
  TrainData data;
  data.training = std::make_unique<data::MockTokens>(tokens);
  if (spec.train.eval_interval > 0) data.held_out = std::make_unique<FarTokens>(tokens);
  data.title = join_parts("made-up text, seed ", spec.train.seed);
  data.digest = join_parts("made-up ", spec.train.seed);
  return data;
}

Result<TrainData> open_data(const spec::Spec& spec) {
  if (spec.data.files.empty())
    return Error{Code::kMissingKey, "`data.files` is missing: there is nothing to train on",
                 "name token files in [data], `lockstep data from-text` makes some of any text; or "
                 "train on made-up text with --mock-data"};
  Result<std::unique_ptr<data::CorpusTokens>> training = spec::open_training(spec);
  if (!training.ok()) return training.error();
  TrainData data;
  data.title = title_of(spec, **training);
  data.digest = to_hex((*training)->digest());
  data.training = *std::move(training);
  if (spec.train.eval_interval == 0) return data;
  Result<std::unique_ptr<data::CorpusTokens>> held_out =
      spec::open_validation(spec, spec.train.eval_samples);
  if (!held_out.ok()) return held_out.error();
  data.held_out = *std::move(held_out);
  return data;
}

}  // namespace lockstep::cli
