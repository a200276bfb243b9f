// Which LibTorch is in use.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::tensor {

std::string torch_version();  // "2.13.0"

// What else decides the bits and the speed of a run on a CPU: MKL, oneDNN, OpenMP and the
// instructions that kernels use, each with its version as it says it itself.
std::vector<std::pair<std::string, std::string>> torch_packages();

}  // namespace lockstep::tensor
