// Initial weights: a pure function of (seed, parameter name, element index), so that every layout
// starts from the same bits and a rank makes only what it holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"

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

struct Drawing {
  Draws* known = nullptr;  // remembers what was drawn; absent: nobody does
  int threads = 0;         // that draw; 0: as many as there are cores
  // Called on the caller's thread every few milliseconds, with the number of elements written
  // since. What it throws ends the drawing.
  std::function<void(std::int64_t elements)> between = {};
};

// Writes elements `range` of the flat buffer of `segment`, which are all of `out`, in
// CPU memory; of the buffer of `place` where tensor ranks share the unit. A tied copy gets the
// values of the weight it copies. Gaps become zero. bf16 gets the rounding of what f32 would get.
// Bits do not depend on threads.
void write_initial(const model::Model& model, int segment, const model::FlatLayout& layout,
                   model::FlatRange range, std::uint64_t seed, const at::Tensor& out,
                   model::TensorPlace place = {}, const Drawing& drawing = {});

}  // namespace lockstep::optim
