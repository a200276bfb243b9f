// The verbs of `lockstep data` that look at a run's data.
#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

Verb data_blend_verb();
Verb data_sample_verb();

}  // namespace lockstep::cli
