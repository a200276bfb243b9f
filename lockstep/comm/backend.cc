#include "lockstep/comm/backend.h"

namespace lockstep::comm {
namespace {

// Snapshot, staged result and checks live outside tensor memory, and the row is not for measuring
// memory of a job.
Bytes no_scratch(OpKind /*op*/, Bytes /*bytes*/, int /*size*/) { return {0}; }

constexpr BackendRow kRows[] = {
    {"local", "ranks as threads of one process, for verify and tests", "thread", no_scratch},
};

}  // namespace

std::span<const BackendRow> core_backends() { return kRows; }

}  // namespace lockstep::comm
