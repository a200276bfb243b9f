// One row of the backend catalogue. The rows below the LibTorch fence are here; tensor/backends.h
// joins them with its own.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/comm/ledger.h"

namespace lockstep::comm {

struct BackendRow {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  std::string_view ranks;    // what a rank is: "thread", "process"
  // Memory the row itself takes for an operation on `bytes` (the full buffer) among `size` members.
  Bytes (*scratch)(OpKind op, Bytes bytes, int size);
};

std::span<const BackendRow> core_backends();

}  // namespace lockstep::comm
