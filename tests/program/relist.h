// Lists of ops that can be rearranged without losing which op each Wait waits for.
#pragma once

#include <utility>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

struct NamedOp {
  Op op;
  int id = 0;        // its place in the original list
  int awaited = -1;  // a Wait: id of its target
};

inline std::vector<NamedOp> named(const std::vector<Op>& list) {
  std::vector<NamedOp> ops;
  for (const Op& op : list) ops.push_back({op, static_cast<int>(ops.size()), op.target});
  return ops;
}

// Waits for an op that is gone go too.
inline std::vector<Op> relisted(std::vector<NamedOp> ops) {
  const auto place_of = [&ops](int id) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].id == id) return static_cast<int>(i);
    return -1;
  };
  std::erase_if(ops,
                [&](const NamedOp& op) { return op.awaited >= 0 && place_of(op.awaited) < 0; });
  std::vector<Op> list;
  for (const NamedOp& op : ops) {
    list.push_back(op.op);
    if (op.awaited >= 0) list.back().target = place_of(op.awaited);
  }
  return list;
}

}  // namespace lockstep::program
