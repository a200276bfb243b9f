// What measured times hold for: everything that the length of a unit's passes depends on, as names
// and values in a fixed order. The number of layers is not among them, nor is how a step is
// divided, as far as that changes no unit.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/base/result.h"
#include "lockstep/model/model_config.h"
#include "lockstep/model/unit_bytes.h"

namespace lockstep::cost {

struct Trait {
  std::string name;   // as a run file calls it: "batch.microbatch"
  std::string value;  // "4"
  bool operator==(const Trait&) const = default;
};
using Fingerprint = std::vector<Trait>;

Fingerprint fingerprint(const model::ModelConfig& config, const model::UnitSizes& sizes);

Json to_json(const Fingerprint& print);
Fingerprint read_fingerprint(JsonFields fields);

// kConflict, naming the first trait that differs and both values. `name` is the file that holds
// `measured`.
Result<void> check_same(const Fingerprint& measured, const Fingerprint& asked,
                        const std::string& name, const std::string& remedy);

}  // namespace lockstep::cost
