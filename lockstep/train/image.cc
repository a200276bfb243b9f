#include "lockstep/train/image.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/base/check.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kRoleNames[] = {"gradient", "parameter", "first moment",
                                           "second moment"};

std::size_t index(Role role) { return static_cast<std::size_t>(role); }

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(),
                     static_cast<std::size_t>(a.nbytes())) == 0;
}

double max_abs(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

double relative(double difference, double scale) {
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  if (difference == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : difference / scale;
}

}  // namespace

std::string_view to_text(Role role) { return kRoleNames[index(role)]; }

const at::Tensor& StepImage::at(int unit, Role role) const {
  return units[static_cast<std::size_t>(unit)][index(role)];
}

Hash128 StepImage::digest() const {
  Xxh3 hash;
  for (const auto& unit : units)
    for (Role role : {Role::kParameter, Role::kFirstMoment, Role::kSecondMoment}) {
      const at::Tensor& tensor = unit[index(role)];
      hash.update(std::as_bytes(std::span(static_cast<const char*>(tensor.const_data_ptr()),
                                          static_cast<std::size_t>(tensor.nbytes()))));
    }
  return hash.digest128();
}

ImageBuilder::ImageBuilder(const arch::Model& model, int steps, at::ScalarType type)
    : layouts_(arch::flat_layouts(model)),
      order_(model.order),
      images_(static_cast<std::size_t>(steps)),
      written_(static_cast<std::size_t>(steps)) {
  for (std::size_t step = 0; step < images_.size(); ++step) {
    written_[step].resize(order_.size());
    for (int kind : order_) {
      auto& roles = images_[step].units.emplace_back();
      for (at::Tensor& role : roles)
        role = at::empty({layouts_[static_cast<std::size_t>(kind)].size}, at::TensorOptions(type));
    }
  }
}

void ImageBuilder::add(const Piece& piece) {
  const std::lock_guard lock(mutex_);
  const auto step = static_cast<std::size_t>(piece.step),
             unit = static_cast<std::size_t>(piece.unit);
  const at::Tensor& whole = images_[step].units[unit][index(piece.role)];
  const std::int64_t length = std::min(piece.range.end, whole.numel()) - piece.range.begin;
  if (length <= 0) return;  // padding
  const at::Tensor target = whole.narrow(0, piece.range.begin, length);
  const at::Tensor source = piece.data.narrow(0, 0, length);
  auto& ranges = written_[step][unit][index(piece.role)].ranges;
  if (std::ranges::find(ranges, piece.range) == ranges.end()) {
    target.copy_(source);
    ranges.push_back(piece.range);
  } else if (!same_bits(target, source) && disagreement_.empty()) {
    disagreement_ = join_parts(to_text(piece.role), " of unit ", piece.unit,
                               " differs between replicas after step ", piece.step);
  }
}

void ImageBuilder::set_scalars(int step, double loss, double grad_norm, bool updated) {
  const std::lock_guard lock(mutex_);
  StepImage& image = images_[static_cast<std::size_t>(step)];
  image.loss = loss;
  image.grad_norm = grad_norm;
  image.updated = updated;
}

std::vector<StepImage> ImageBuilder::take() {
  for (const auto& step : written_)
    for (std::size_t unit = 0; unit < step.size(); ++unit)
      for (const Written& written : step[unit]) {
        std::int64_t covered = 0;
        for (const arch::FlatRange& range : written.ranges) covered += range.size();
        LS_CHECK(covered >= layouts_[static_cast<std::size_t>(order_[unit])].size, "ranks brought ",
                 covered, " elements of unit ", unit);
      }
  return std::move(images_);
}

Difference compare(const arch::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr) {
  const std::vector<arch::FlatLayout> layouts = arch::flat_layouts(model);
  Difference worst;
  worst.role = role;
  for (int unit = 0; unit < model.num_units(); ++unit) {
    const at::Tensor &mine = got.at(unit, role), &theirs = reference.at(unit, role);
    const double scale = std::max(max_abs(theirs), role == Role::kParameter ? lr : 0.0);
    for (const arch::FlatParam& place :
         layouts[static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)])].params) {
      const at::Tensor difference = mine.narrow(0, place.offset, place.numel)
                                        .sub(theirs.narrow(0, place.offset, place.numel));
      const double error = relative(max_abs(difference), scale);
      if (!(error > worst.error)) continue;
      worst.error = error;
      worst.tensor =
          arch::name_at(model.unit(unit).params[static_cast<std::size_t>(place.param)].name,
                        arch::Model::layer(unit));
    }
  }
  return worst;
}

Difference compare_scalars(const StepImage& got, const StepImage& reference) {
  Difference worst;
  for (const auto& [name, mine, theirs] :
       {std::tuple("loss", got.loss, reference.loss),
        std::tuple("gradient norm", got.grad_norm, reference.grad_norm)}) {
    const double error = relative(std::abs(mine - theirs), std::abs(theirs));
    if (error > worst.error) {
      worst.error = error;
      worst.tensor = name;
    }
  }
  return worst;
}

}  // namespace lockstep::train
