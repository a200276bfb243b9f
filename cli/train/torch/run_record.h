// What a run folder says of the run itself, beside its checkpoints and metrics: config.toml, a run
// file of all keys that were set, and as comments the values of those that were not;
// environment.json, what it runs on. Both are those of the last start.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/config/document.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

// Of rank 0. Writes when the run begins, so that a resume with nothing to do touches nothing.
class RunRecord final : public train::RunObserver {
 public:
  // `on_trouble`: a file could not be written; the run goes on.
  RunRecord(std::string folder, const config::Document& document, int ranks,
            std::function<void(const Error& error)> on_trouble);
  void begins(const train::Progress& done, bool continues) override;

 private:
  const std::string folder_, config_, environment_;
  const std::function<void(const Error& error)> on_trouble_;
};

}  // namespace lockstep::cli
