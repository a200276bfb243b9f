#include "lockstep/tensor/backends.h"

#include "lockstep/tensor/gloo_world.h"

namespace lockstep::tensor {
namespace {

#if LOCKSTEP_NCCL
Bytes nccl_scratch(comm::OpKind /*op*/, Bytes /*bytes*/, int /*size*/) {
  return {0};
}  // NCCL's own, outside tensors
#endif

}  // namespace

std::vector<comm::BackendRow> all_backends() {
  const auto core = comm::core_backends();
  std::vector<comm::BackendRow> rows(core.begin(), core.end());
  rows.push_back({"gloo", "CPU processes over TCP", "process", gloo_scratch});
#if LOCKSTEP_NCCL
  rows.push_back({"nccl", "one CUDA device per process; compiled and linked, not yet run on a GPU",
                  "process", nccl_scratch});
#endif
  return rows;
}

}  // namespace lockstep::tensor
