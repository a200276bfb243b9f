// The whole logical state of a training step, put together from the pieces that ranks hold, so that
// runs of different layouts can be compared tensor by tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/base/hash.h"

namespace lockstep::train {

enum class Role : std::uint8_t { kGradient, kParameter, kFirstMoment, kSecondMoment };
inline constexpr int kNumRoles = 4;
std::string_view to_text(Role role);  // "gradient"

// One rank's part of one unit's buffer.
struct Piece {
  std::int32_t step = 0;
  std::int32_t unit = 0;
  Role role = Role::kGradient;
  arch::FlatRange range;
  at::Tensor data;  // on the CPU, a copy
};

// After one step. Whole flat buffers per unit and role, FlatLayout::size elements each.
struct StepImage {
  double loss = 0;
  double grad_norm = 0;
  bool updated = true;
  std::vector<std::array<at::Tensor, kNumRoles>> units;

  const at::Tensor& at(int unit, Role role) const;
  Hash128 digest() const;  // of parameters and moments, bit for bit
};

// Joins pieces. Any thread may add.
class ImageBuilder {
 public:
  ImageBuilder(const arch::Model& model, int steps, at::ScalarType type);

  // A piece that another rank has brought already must be equal to it bit for bit; the first that
  // is not is remembered.
  void add(const Piece& piece);
  void set_scalars(int step, double loss, double grad_norm, bool updated);

  // REQUIRES: every element was brought.
  std::vector<StepImage> take();
  // "parameter of unit 3 differs between replicas after step 1"; empty when replicas agree.
  const std::string& disagreement() const { return disagreement_; }

 private:
  struct Written {
    std::vector<arch::FlatRange> ranges;
  };
  const std::vector<arch::FlatLayout> layouts_;
  const std::vector<int> order_;
  std::mutex mutex_;
  std::vector<StepImage> images_;
  std::vector<std::vector<std::array<Written, kNumRoles>>> written_;  // by step and unit
  std::string disagreement_;
};

// The largest difference between two images, as design 7 measures it: max|difference| over
// max|reference| of the unit and role; for parameters over the larger of that and `lr`.
struct Difference {
  double error = 0;
  std::string tensor;  // "blocks.2.attn.q.weight", or "loss", "gradient norm"
  Role role = Role::kGradient;
};
Difference compare(const arch::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr);
// Of loss and gradient norm.
Difference compare_scalars(const StepImage& got, const StepImage& reference);

}  // namespace lockstep::train
