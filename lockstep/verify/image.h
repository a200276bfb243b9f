// The whole logical state of a training step, put together from the pieces that ranks hold, so that
// runs of different layouts can be compared tensor by tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/train/session.h"

namespace lockstep::verify {

enum class Role : std::uint8_t { kGradient, kParameter, kFirstMoment, kSecondMoment };
inline constexpr int kNumRoles = 4;
std::string_view to_text(Role role);  // "gradient"

// One rank's part of one segment's buffer, as it lays that out.
struct Piece {
  std::int32_t step = 0;
  std::int32_t segment = 0;
  Role role = Role::kGradient;
  model::TensorPlace place = {};
  model::FlatRange range;
  at::Tensor data;  // on the CPU
};

// After one step. Whole flat buffers per segment and role, as one tensor rank would lay them out:
// FlatLayout::size elements each, zero in the gaps.
struct StepImage {
  double loss = 0;
  double grad_norm = 0;
  bool updated = true;
  double aux_loss = 0, z_loss = 0;  // of routers
  std::vector<std::int64_t> expert_tokens;
  std::vector<float> router_bias;
  std::map<int, std::array<at::Tensor, kNumRoles>> segments;

  const at::Tensor& at(int segment, Role role) const;
  // The same as a tensor rank lays it out that shares the unit with others.
  at::Tensor at(const model::Model& model, int segment, Role role, model::TensorPlace place) const;
  Hash128 digest() const;  // of parameters and moments, bit for bit
};

// Of all that is in them, bit for bit.
Hash128 digest_of(std::span<const StepImage> images);

// Joins pieces. Any thread may add. The model must outlive it.
class ImageBuilder {
 public:
  // Of ranks that hold shares as model::flat_layouts has them.
  ImageBuilder(const model::Model& model, int steps, at::ScalarType type, std::int64_t tp,
               std::int64_t ep = 1, std::optional<std::int64_t> etp = {});

  // What another rank has brought already must be equal to it bit for bit; the first piece in which
  // something is not is remembered.
  void add(const Piece& piece);
  void set_report(int step, const train::StepReport& report);

  // REQUIRES: every element was brought.
  std::vector<StepImage> take();
  // "parameter of unit 3 differs between replicas after step 1"; empty when replicas agree.
  const std::string& disagreement() const { return disagreement_; }

 private:
  using Written = std::map<std::int64_t, std::int64_t>;  // runs of the whole buffer: begin, length

  const model::Model& model_;
  const std::vector<model::FlatLayout> layouts_;  // whole
  const std::vector<model::FlatLayout> shares_;   // as a rank has them
  std::mutex mutex_;
  std::vector<StepImage> images_;
  std::vector<std::map<int, std::array<Written, kNumRoles>>> written_;  // by step and segment
  std::string disagreement_;
};

// The largest difference between two images.
struct Difference {
  double error = 0;    // infinite where a number is not one
  std::string tensor;  // "blocks.2.attn.q.weight", or "loss", "gradient norm"; empty: no difference
};

// Max|difference| over max|reference| of the segment and role; for parameters
// over the larger of that and `lr`.
Difference compare(const model::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr);
// Of losses and gradient norm, each over the reference's.
Difference compare_scalars(const StepImage& got, const StepImage& reference);
// Of the tokens that each expert met, over the reference's, and of selection biases, over the
// greatest of the reference's.
Difference compare_experts(const model::Model& model, const StepImage& got,
                           const StepImage& reference);

// Of parameters after update number `count`, made from the same state: the least r such that
// parameters off by r of the unit's largest, and gradients off by r of the unit's largest root of
// the second moment, explain every difference to first order (a backward error). AdamW divides by
// that root, so an element whose gradient is near zero is far off though nothing is wrong;
// docs/numerics.md.
Difference compare_updated(const model::Model& model, const StepImage& got,
                           const StepImage& reference, const optim::AdamW& settings,
                           std::int64_t count);
// Of f32 master weights after a free run of `count` updates: max|difference| over how far apart two
// such runs can be, which is `farthest` and what roundings to f32 add.
Difference compare_reached(const model::Model& model, const StepImage& got,
                           const StepImage& reference, double farthest, std::int64_t count);

}  // namespace lockstep::verify
