// Initial weights: a pure function of (seed, parameter name, element index), so that every layout
// starts from the same bits and a rank makes only what it holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/arch/flat_runs.h"

namespace lockstep::optim {

// Remembers what was drawn, for a process that starts from the same weights many times. Any thread.
class Draws {
 public:
  // The first `count` normal numbers of a stream. REQUIRES: of one stream always as many.
  std::shared_ptr<const std::vector<double>> normals(std::uint64_t seed, const std::string& name,
                                                     std::int64_t count);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::string>, std::shared_ptr<const std::vector<double>>>
      known_;
};

// Writes elements `range` of the flat buffer of the unit at `position`, which are all of `out`, in
// CPU memory; of the buffer of `place` where tensor ranks share the unit. A tied copy gets the values
// of the weight it copies. Gaps become zero. bf16 gets the rounding of what f32 would get.
void write_initial(const arch::Model& model, int position, const arch::FlatLayout& layout,
                   arch::FlatRange range, std::uint64_t seed, const at::Tensor& out,
                   arch::TensorPlace place = {}, Draws* draws = nullptr);

}  // namespace lockstep::optim
