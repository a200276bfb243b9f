#include "lockstep/tensor/torch_version.h"

#include <torch/headeronly/version.h>

namespace lockstep::tensor {

std::string torch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

}  // namespace lockstep::tensor
