#include "cli/train_data.h"

#if LOCKSTEP_WITH_TORCH
#include "lockstep/base/check.h"
#include "lockstep/data/mock_tokens.h"

namespace lockstep::cli {
namespace {

// The same made-up text, far behind all that steps take.
class FarTokens final : public data::TokenSource {
 public:
  explicit FarTokens(const data::MockTokens& tokens) : tokens_(tokens) {}

  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    constexpr std::int64_t kFar = std::int64_t{1} << 30;
    tokens_.read(kFar + sample, tokens, labels);
  }

 private:
  data::MockTokens tokens_;
};

}  // namespace

TrainData made_up_data(const plan::Spec& spec) {
  const data::MockTokens tokens(static_cast<std::uint64_t>(spec.train.seed), spec.model.vocab,
                                /*ignore_some=*/false);
  TrainData data;
  data.training = std::make_unique<data::MockTokens>(tokens);
  if (spec.train.eval_interval > 0) data.held_out = std::make_unique<FarTokens>(tokens);
  data.title = join_parts("made-up text, seed ", spec.train.seed);
  data.digest = join_parts("made-up ", spec.train.seed);
  return data;
}

}  // namespace lockstep::cli
#endif
