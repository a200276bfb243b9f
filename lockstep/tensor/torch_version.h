// Which LibTorch is in use.
#pragma once

#include <string>

namespace lockstep::tensor {

std::string torch_version();  // "2.13.0"

}  // namespace lockstep::tensor
