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

#include "lockstep/arch/model_config.h"
#include "lockstep/base/result.h"
#include "lockstep/config/fields.h"

namespace lockstep::arch {

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

// The same for callers that want only the first error.
Result<ModelConfig> model_named(std::string_view name);

// Keys of a model file and their values as texts, in the order of the fields.
using ModelFacts = std::vector<std::pair<std::string, std::string>>;

// All of the model but its name; left out is what the family takes for granted. Equal models give equal
// facts. REQUIRES: problems(model) is empty.
ModelFacts model_facts(const ModelConfig& model);
// The model again, without a name. Refuses what model_from() refuses.
Result<ModelConfig> model_of(const ModelFacts& facts);

// A model file from which model_from() reads exactly this model: TOML, a line per fact. REQUIRES: as
// model_facts.
std::string model_text(const ModelConfig& model);

}  // namespace lockstep::arch
