// The proof that a checkpoint is whole: every element of every tensor is in exactly one slice.
#pragma once

#include "lockstep/base/result.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoint {

// Boxes of a tensor must tile it, and ranges of slices with one box must tile that box; more general
// covers are never written. Refuses (LS0822) with the tensor and the first elements that are in no slice or
// in two, and where there is no tensor. Takes time in proportion to slices, and to the square of a tensor's
// boxes.
Result<void> check_coverage(const Manifest& manifest, const std::string& path);

}  // namespace lockstep::checkpoint
