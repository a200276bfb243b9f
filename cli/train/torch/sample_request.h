// What `lockstep train --sample` asks for.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/generate/generate.h"

namespace lockstep::cli {

struct SampleRequest {
  std::string prompt;
  std::int64_t interval = 0;  // steps
  generate::Request request = {};
};

}  // namespace lockstep::cli
