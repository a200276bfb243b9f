#include "lockstep/nn/typed_rows.h"

#include <ATen/Parallel.h>

namespace lockstep::nn {

void for_ranges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, count, grain, body);
}

}  // namespace lockstep::nn
