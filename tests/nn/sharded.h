// Units on several tensor ranks that are threads: cutting whole buffers, running, putting together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/ledger.h"
#include "lockstep/nn/tensor_group.h"
#include "tests/nn/oracle.h"

namespace lockstep::nn {

struct Ways {
  int tp = 1;
  bool sp = false;
  std::string text() const { return "tp " + std::to_string(tp) + (sp ? " with sp" : ""); }
};
std::vector<Ways> all_ways();  // 1, 2 and 4 ranks, without and with sequence parallelism

// Shapes that 4 ranks cut: grouped and full key-value heads, gaps after gains, several sequences,
// more than one attention tile; fewer key-value heads than ranks and a vocabulary that they do not
// divide; one so small that a rank has none of it. The first and the fifth also with the traits of
// other families.
std::vector<Shape> divisible_shapes();

// A model's units as each of tp ranks holds them.
struct Sharded {
  Sharded(const Tiny& of, Ways ways);

  const Tiny& tiny;
  Ways ways;
  std::vector<model::FlatLayout> flats;
  const model::FlatLayout& flat(int unit) const { return flats[static_cast<std::size_t>(unit)]; }

  // A rank's flat buffer from the whole one; NaN in the gaps.
  at::Tensor cut(int unit, const at::Tensor& whole, std::int64_t rank) const;
  // The whole gradient buffer from those of all ranks; zero in the gaps. What several
  // ranks hold is added up where they have summands of it (model::FlatLayout), and else must be the
  // same bit for bit. Rows that pad a vocabulary must have gradients of zero.
  at::Tensor join(int unit, const std::vector<at::Tensor>& grads) const;
  // The path's rows of a rank, in memory of their own; and back, which without sequence parallelism
  // must be the same on all ranks bit for bit.
  at::Tensor path(const at::Tensor& whole, std::int64_t rank) const;
  at::Tensor join_path(const std::vector<at::Tensor>& parts) const;
};

// Calls body(group, ledger) on a thread for each rank.
void on_ranks(Ways ways, const std::function<void(const TensorGroup&, comm::Ledger&)>& body);

}  // namespace lockstep::nn
