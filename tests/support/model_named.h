// A model of the catalogue or of a file, with only the first error.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/model/user_model.h"

namespace lockstep::model {

inline Result<ModelConfig> model_named(std::string_view name) {
  config::Report report;
  std::optional<ModelConfig> model = find_model(name, report);
  if (!model) return report.first_error();
  return *std::move(model);
}

}  // namespace lockstep::model
