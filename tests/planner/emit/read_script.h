// Launch scripts read back, each as its framework reads it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/spec/layout.h"

namespace lockstep::planner {

struct ReadScript {
  spec::Layout layout;
  spec::Batch batch;
  bool fp8 = false;
  std::vector<std::string> names;  // of flags, or of keys
};

ReadScript read_script(std::string_view framework, const std::string& text, std::int64_t layers);

}  // namespace lockstep::planner
