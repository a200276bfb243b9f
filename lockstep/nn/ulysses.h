// Kernels that exchange heads for positions (DeepSpeed Ulysses, arXiv 2309.14509, section 3.1; in
// front of and behind the parts in parts/part.h). They copy, on any device; where ranks outnumber
// the heads of keys, gradients of a head's copies are added up.
#pragma once

#include "lockstep/nn/pass_run.h"

namespace lockstep::nn {

void deal_heads(PassRun& r);
void whole_sequences(PassRun& r);
void deal_tokens(PassRun& r);
void all_heads(PassRun& r);

}  // namespace lockstep::nn
