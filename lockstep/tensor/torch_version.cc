#include "lockstep/tensor/torch_version.h"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>

namespace lockstep::tensor {

std::string torch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

std::vector<std::pair<std::string, std::string>> torch_packages() {
  return {{"mkl", at::get_mkl_version()},
          {"onednn", at::get_mkldnn_version()},
          {"openmp", at::get_openmp_version()},
          {"instructions", at::get_cpu_capability()}};
}

}  // namespace lockstep::tensor
