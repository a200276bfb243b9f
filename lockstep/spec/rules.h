// What contradicts itself in a run file, shown at its place. Used by read_spec() alone.
#pragma once

#include "lockstep/config/fields.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::spec {

// Fills in dp when it was left out, then reports every rule that does not hold. Of `asked` a part
// is absent when a mistake in it has already been reported.
void apply_rules(const config::Settings& settings, Request& asked, config::Report& report);

}  // namespace lockstep::spec
