#include "lockstep/verify/image.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "lockstep/base/check.h"

namespace lockstep::verify {
namespace {

constexpr const char* kRoleNames[] = {"gradient", "parameter", "first moment", "second moment"};

std::size_t index(Role role) { return static_cast<std::size_t>(role); }

char* bytes_at(const at::Tensor& tensor, std::int64_t element) {
  return static_cast<char*>(tensor.data_ptr()) + element * tensor.element_size();
}

const model::FlatLayout& layout_of(const std::vector<model::FlatLayout>& layouts,
                                   const model::Model& model, int segment) {
  return layouts[model.layout_of(segment)];
}

std::string name_of(const model::Model& model, int segment) {
  return join_parts(model.is_experts(segment) ? "experts of unit " : "unit ",
                    model.unit_of(segment));
}

void add_bits(const at::Tensor& tensor, Xxh3& hash) {
  hash.update(std::as_bytes(std::span(static_cast<const char*>(tensor.const_data_ptr()),
                                      static_cast<std::size_t>(tensor.nbytes()))));
}

double max_abs(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.abs().max().item<double>();
}

double relative(double difference, double scale) {
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  if (difference == 0) return 0;
  return scale == 0 ? std::numeric_limits<double>::infinity() : difference / scale;
}

// `error_of(segment, from, length)` is the error of those elements of a segment; the largest wins.
template <class ErrorOf>
Difference worst_of(const model::Model& model, const ErrorOf& error_of) {
  const std::vector<model::FlatLayout> layouts = model::flat_layouts(model);
  Difference worst;
  for (const int segment : model.segments()) {
    for (const model::FlatParam& place : layout_of(layouts, model, segment).params) {
      const double error = error_of(segment, place.offset, place.numel);
      if (!(error > worst.error)) continue;
      const model::Param& param = model.unit(segment).params[place.param];
      worst = {error, model::name_at(param.name, model::Model::layer(model.unit_of(segment)))};
    }
  }
  return worst;
}

at::Tensor difference(const StepImage& got, const StepImage& reference, int segment, Role role,
                      std::int64_t from, std::int64_t length) {
  return got.at(segment, role)
      .narrow(0, from, length)
      .sub(reference.at(segment, role).narrow(0, from, length));
}

}  // namespace

std::string_view to_text(Role role) { return kRoleNames[index(role)]; }

const at::Tensor& StepImage::at(int segment, Role role) const {
  return segments.at(segment)[index(role)];
}

at::Tensor StepImage::at(const model::Model& model, int segment, Role role,
                         model::TensorPlace place) const {
  const at::Tensor& whole = at(segment, role);
  if (place.tp == 1 && place.ep == 1) return whole;
  const auto wholes = model::flat_layouts(model);
  const auto shares = model::flat_layouts(model, place.tp, place.ep, place.etp);
  const model::FlatLayout& share = layout_of(shares, model, segment);
  at::Tensor made = at::zeros({share.size}, whole.options());
  for (const model::FlatRun& run :
       model::flat_runs(model.unit(segment), share, place, {0, share.size})) {
    const std::int64_t from = layout_of(wholes, model, segment).of(run.param).offset + run.element;
    std::memcpy(bytes_at(made, run.at), bytes_at(whole, from), run.length * whole.element_size());
  }
  return made;
}

Hash128 StepImage::digest() const {
  Xxh3 hash;
  for (const auto& [unused, roles] : segments)
    for (Role role : {Role::kParameter, Role::kFirstMoment, Role::kSecondMoment})
      add_bits(roles[index(role)], hash);
  hash.update(std::as_bytes(std::span(router_bias)));
  return hash.digest128();
}

Hash128 digest_of(std::span<const StepImage> images) {
  Xxh3 hash;
  for (const StepImage& image : images) {
    const double numbers[] = {image.loss, image.grad_norm, image.updated ? 1.0 : 0.0,
                              image.aux_loss, image.z_loss};
    hash.update(std::as_bytes(std::span(numbers)));
    hash.update(std::as_bytes(std::span(image.expert_tokens)));
    hash.update(std::as_bytes(std::span(image.router_bias)));
    for (const auto& [unused, roles] : image.segments)
      for (const at::Tensor& role : roles) add_bits(role, hash);
  }
  return hash.digest128();
}

ImageBuilder::ImageBuilder(const model::Model& model, int steps, at::ScalarType type,
                           std::int64_t tp, std::int64_t ep, std::optional<std::int64_t> etp)
    : model_(model),
      layouts_(model::flat_layouts(model)),
      shares_(model::flat_layouts(model, tp, ep, etp)),
      images_(steps),
      written_(steps) {
  for (StepImage& image : images_)
    for (const int segment : model.segments())
      for (at::Tensor& role : image.segments[segment])
        role = at::zeros({layout_of(layouts_, model, segment).size}, at::TensorOptions(type));
}

void ImageBuilder::add(const Piece& piece) {
  const std::lock_guard lock(mutex_);
  const at::Tensor& whole = images_[piece.step].at(piece.segment, piece.role);
  const model::FlatLayout& layout = layout_of(layouts_, model_, piece.segment);
  Written& written = written_[piece.step][piece.segment][index(piece.role)];
  for (const model::FlatRun& run :
       model::flat_runs(model_.unit(piece.segment), layout_of(shares_, model_, piece.segment),
                        piece.place, piece.range)) {
    const std::int64_t at = layout.of(run.param).offset + run.element;
    char* const to = bytes_at(whole, at);
    const char* const from = bytes_at(piece.data, run.at - piece.range.begin);
    const auto size = static_cast<std::size_t>(run.length * whole.element_size());
    const auto [known, is_new] = written.try_emplace(at, run.length);
    LS_CHECK(known->second == run.length, "ranks cut ", name_of(model_, piece.segment),
             " differently");
    if (is_new)
      std::memcpy(to, from, size);
    else if (std::memcmp(to, from, size) != 0 && disagreement_.empty())
      disagreement_ = join_parts(to_text(piece.role), " of ", name_of(model_, piece.segment),
                                 " differs between replicas after step ", piece.step);
  }
}

void ImageBuilder::set_report(int step, const train::StepReport& report) {
  const std::lock_guard lock(mutex_);
  StepImage& image = images_[step];
  image.loss = report.loss;
  image.grad_norm = report.grad_norm;
  image.updated = report.updated;
  image.aux_loss = report.aux_loss;
  image.z_loss = report.z_loss;
  image.expert_tokens = report.expert_tokens;
  image.router_bias = report.router_bias;
}

std::vector<StepImage> ImageBuilder::take() {
  for (auto& step : written_)
    for (const int segment : model_.segments()) {
      std::int64_t all = 0;
      for (const model::FlatParam& param : layout_of(layouts_, model_, segment).params)
        all += param.numel;
      for (const Written& written : step[segment]) {
        std::int64_t covered = 0;
        for (const auto& [begin, length] : written) covered += length;
        LS_CHECK(covered == all, "ranks brought ", covered, " of ", all, " elements of ",
                 name_of(model_, segment));
      }
    }
  return std::move(images_);
}

Difference compare(const model::Model& model, const StepImage& got, const StepImage& reference,
                   Role role, double lr) {
  return worst_of(model, [&](int segment, std::int64_t from, std::int64_t length) {
    const double scale =
        std::max(max_abs(reference.at(segment, role)), role == Role::kParameter ? lr : 0.0);
    return relative(max_abs(difference(got, reference, segment, role, from, length)), scale);
  });
}

Difference compare_scalars(const StepImage& got, const StepImage& reference) {
  Difference worst;
  for (const auto& [name, mine, theirs] :
       {std::tuple("loss", got.loss, reference.loss),
        std::tuple("gradient norm", got.grad_norm, reference.grad_norm),
        std::tuple("aux loss of routers", got.aux_loss, reference.aux_loss),
        std::tuple("z loss of routers", got.z_loss, reference.z_loss)}) {
    const double error = relative(std::abs(mine - theirs), std::abs(theirs));
    if (error > worst.error) worst = {error, name};
  }
  return worst;
}

Difference compare_experts(const model::Model& model, const StepImage& got,
                           const StepImage& reference) {
  LS_CHECK(got.expert_tokens.size() == reference.expert_tokens.size() &&
               got.router_bias.size() == reference.router_bias.size(),
           "counts of ", got.expert_tokens.size(), " experts, not of ",
           reference.expert_tokens.size());
  Difference worst;
  double greatest = 0;
  for (const float bias : reference.router_bias)
    greatest = std::max(greatest, std::abs(static_cast<double>(bias)));
  std::size_t next = 0;
  for (const int segment : model.segments()) {
    if (!model.is_experts(segment)) continue;
    const int layer = model::Model::layer(model.unit_of(segment));
    for (std::int64_t expert = 0; expert < model.config.moe.experts; ++expert, ++next) {
      const auto mine = static_cast<double>(got.expert_tokens[next]);
      const auto theirs = static_cast<double>(reference.expert_tokens[next]);
      const double error = relative(std::abs(mine - theirs), theirs);
      if (error > worst.error)
        worst = {error, join_parts("number of tokens of blocks.", layer, "'s expert ", expert)};
      if (reference.router_bias.empty()) continue;
      const double apart = static_cast<double>(got.router_bias[next]) - reference.router_bias[next];
      const double bias_error = relative(std::abs(apart), greatest);
      if (bias_error > worst.error)
        worst = {bias_error, join_parts("selection bias of blocks.", layer, "'s expert ", expert)};
    }
  }
  return worst;
}

Difference compare_updated(const model::Model& model, const StepImage& got,
                           const StepImage& reference, const optim::AdamW& settings,
                           std::int64_t count) {
  const double correction =
      std::sqrt(1 - std::pow(settings.beta2, static_cast<double>(count)));  // of the root
  return worst_of(model, [&](int segment, std::int64_t from, std::int64_t length) {
    const at::Tensor& second = reference.at(segment, Role::kSecondMoment);
    const double gradient = std::sqrt(max_abs(second)) / correction;
    const double parameter = max_abs(reference.at(segment, Role::kParameter));
    const at::Tensor explained = second.narrow(0, from, length)
                                     .sqrt()
                                     .div_(correction)
                                     .add_(settings.eps)
                                     .reciprocal_()
                                     .mul_(settings.lr * gradient)
                                     .add_(parameter);
    const at::Tensor found = difference(got, reference, segment, Role::kParameter, from, length);
    return relative(max_abs(found.div(explained)), 1.0);
  });
}

Difference compare_reached(const model::Model& model, const StepImage& got,
                           const StepImage& reference, double farthest, std::int64_t count) {
  // Half the distance from 1 to the next f32, once for the weights at the start and once an update.
  const double rounding = std::ldexp(static_cast<double>(count + 1), -24);
  return worst_of(model, [&](int segment, std::int64_t from, std::int64_t length) {
    const double apart = farthest + rounding * max_abs(reference.at(segment, Role::kParameter));
    return relative(max_abs(difference(got, reference, segment, Role::kParameter, from, length)),
                    apart);
  });
}

}  // namespace lockstep::verify
