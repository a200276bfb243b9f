// Joining the two halves of a backward pass again where they stand side by side.
#pragma once

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Every I that its own W follows at once becomes B, which keeps nothing between the two.
// Activations are held as before. The stage below gets its gradient when B is done, that is one W
// later; so a bubble can grow, except where the stage is the first.
Schedule fuse_backward(const Schedule& schedule);

}  // namespace lockstep::pipeline
