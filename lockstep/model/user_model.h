// Models that users describe in a file, or by name.
//
//   like = "llama3-8b"      # optional: a row of the catalogue to start from
//   layers = 16
//   moe.experts = 8
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/config/fields.h"
#include "lockstep/model/model_config.h"

namespace lockstep::model {

// Every key of a model file.
const config::FieldTable& model_fields();

// Reads a model from a table (a whole model file, or the [model] section of another). Adds a
// diagnostic for every mistake, those of problems() included, and then returns nothing. `where` is
// written before the keys in messages.
std::optional<ModelConfig> model_from(const config::Value& table, config::Report& report,
                                      const std::string& where = "");

// A row of the catalogue; or a model file, when `name` looks like one or is no row and exists. A
// file that does not give its model a name lends it its own.
std::optional<ModelConfig> find_model(std::string_view name, config::Report& report);

// Keys of a model file and their values as texts, in the order of the fields.
using ModelFacts = std::vector<std::pair<std::string, std::string>>;

// Everything that decides shapes or what a forward pass computes, defaults included, so that it can
// be read in years: not the name, nor how weights begin. Equal for models that compute the same.
ModelFacts model_facts(const ModelConfig& model);
// A model of which these are the facts. Refuses what model_from() refuses.
Result<ModelConfig> model_of(const ModelFacts& facts);

// A model file from which model_from() reads exactly this model: TOML, a line per key.
std::string model_text(const ModelConfig& model);

}  // namespace lockstep::model
