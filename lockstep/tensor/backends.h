// The backend catalogue of this build: the rows of comm/backend.h and those that need LibTorch. A
// backend that was not built is an absent row.
#pragma once

#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep::tensor {

std::vector<comm::BackendRow> all_backends();

}  // namespace lockstep::tensor
