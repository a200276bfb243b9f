// The verbs of `lockstep data`, one file each.
#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

Verb data_inspect_verb();  // data_inspect.cc
Verb data_verify_verb();   // data_verify.cc
Verb data_blend_verb();    // data_blend.cc
Verb data_sample_verb();   // data_sample.cc
Verb data_text_verb();     // data_text.cc

}  // namespace lockstep::cli
