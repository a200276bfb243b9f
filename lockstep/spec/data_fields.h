// The [data] table of a run file: its keys, what contradicts itself among them, and the corpus it
// names. Used by run_fields(), apply_rules() and read_spec() alone.
#pragma once

#include <vector>

#include "lockstep/config/fields.h"
#include "lockstep/data/sample_order.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::spec {

std::vector<config::Field> data_fields();

// Every rule of the table that does not hold.
std::vector<Contradiction> data_contradictions(const config::Settings& settings);

// Files that a run file names lie beside it. REQUIRES: no rule was broken.
data::Corpus read_corpus(const config::Settings& settings, const config::Sources& sources);

}  // namespace lockstep::spec
