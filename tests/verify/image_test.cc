#include "lockstep/verify/image.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include "tests/train/tiny.h"

namespace lockstep::verify {
namespace {

std::vector<StepImage> blank_images() {
  std::vector<StepImage> images(2);
  for (StepImage& image : images) {
    for (const int segment : {0, 1})
      for (at::Tensor& role : image.segments[segment])
        role = at::zeros({4}, at::TensorOptions(at::kDouble));
  }
  return images;
}

// Layouts of one class are told apart by it alone, so no number may be left out, nor the sign of a
// zero.
TEST(Image, DigestShowsEveryChange) {
  std::set<Hash128> seen = {digest_of(blank_images())};
  const auto change = [&](const std::function<void(StepImage&)>& edit) {
    for (const std::size_t step : {0, 1}) {
      std::vector<StepImage> images = blank_images();
      edit(images[step]);
      EXPECT_TRUE(seen.insert(digest_of(images)).second);
    }
  };
  change([](StepImage& image) { image.loss = 1; });
  change([](StepImage& image) { image.grad_norm = 1; });
  change([](StepImage& image) { image.updated = false; });
  change([](StepImage& image) { image.aux_loss = 1; });
  change([](StepImage& image) { image.z_loss = 1; });
  change([](StepImage& image) { image.expert_tokens = {0}; });
  for (const int segment : {0, 1})
    for (std::size_t role = 0; role < kNumRoles; ++role)
      for (const std::int64_t element : {0, 3})
        change([&](StepImage& image) {
          image.segments[segment][role].mutable_data_ptr<double>()[element] = -0.0;
        });
  EXPECT_EQ(seen.size(), 1u + 2 * (6 + 2 * kNumRoles * 2));
}

// Measures of distance: what rounding explains is small by them, what it does not is large.

constexpr double kNoise = 1e-6;  // of gradients, in proportion to the unit's largest

// A state after some updates, and the same where gradients of the last were off by at most a noise.
struct Twins {
  model::Model model = model::describe(train::tiny_spec(false, DType::kF64).model).value();
  optim::AdamW settings = {.lr = 1e-2};
  std::int64_t updates;
  StepImage exact = {}, noisy = {};
  std::vector<at::Tensor> before = {};  // parameters of `exact` before the last update
};

at::Tensor updated(const Twins& twins, const model::FlatLayout& layout, StepImage& image, int unit,
                   std::int64_t count, const at::Tensor& grad) {
  auto& roles = image.segments.at(unit);
  const auto at = [&](Role role) { return roles[static_cast<std::size_t>(role)]; };
  const at::Tensor before = at(Role::kParameter).clone();
  update(twins.settings, count, layout, {0, layout.size}, at(Role::kParameter), grad.clone(),
         {at(Role::kFirstMoment), at(Role::kSecondMoment)}, 1.0);
  return before;
}

Twins twins_with(double noise, std::int64_t updates = 2) {
  at::manual_seed(7);
  Twins twins{.updates = updates};
  const auto layouts = model::flat_layouts(twins.model);
  for (int unit = 0; unit < twins.model.num_units(); ++unit) {
    const model::FlatLayout& layout =
        layouts[static_cast<std::size_t>(twins.model.order[static_cast<std::size_t>(unit)])];
    const auto drawn = [&] { return at::randn({layout.size}, at::kDouble); };
    const at::Tensor start = drawn();
    for (StepImage* image : {&twins.exact, &twins.noisy})
      image->segments[unit] = {drawn(), start.clone(), start.mul(0), start.mul(0)};
    for (std::int64_t count = 1; count <= updates; ++count) {
      const at::Tensor grad = drawn();
      const double most = count == updates ? noise * grad.abs().max().item<double>() : 0;
      const at::Tensor off = at::rand({layout.size}, at::kDouble).sub(0.5).mul(2 * most);
      updated(twins, layout, twins.noisy, unit, count, grad.add(off));
      const at::Tensor before = updated(twins, layout, twins.exact, unit, count, grad);
      if (count == updates) twins.before.push_back(before);
    }
  }
  return twins;
}

double by_gradients(const Twins& twins) {
  return compare_updated(twins.model, twins.noisy, twins.exact, twins.settings, twins.updates)
      .error;
}

// An element whose gradients are below the noise may be moved the other way, by 2 lr, which 2 r
// explains; where they are above it, first order does: by less than 1.3 r after one or two updates.
TEST(Compare, UpdatesAreExplainedByTheNoiseOfGradients) {
  for (const std::int64_t updates : {1, 2}) {
    const Twins twins = twins_with(kNoise, updates);
    EXPECT_LE(by_gradients(twins), 2 * kNoise) << updates;
    EXPECT_EQ(by_gradients(twins_with(0, updates)), 0) << updates;
  }
  EXPECT_GE(by_gradients(twins_with(kNoise)), kNoise / 100);
  const Twins first = twins_with(kNoise, 1);
  EXPECT_GT(
      compare(first.model, first.noisy, first.exact, Role::kParameter, first.settings.lr).error,
      20 * by_gradients(first));
}

TEST(Compare, AnUpdateLostOrDoubledIsNotExplained) {
  Twins twins = twins_with(0);
  for (const int unit : {0, 3, twins.model.num_units() - 1}) {
    auto& roles = twins.noisy.segments.at(unit);
    at::Tensor& parameter = roles[static_cast<std::size_t>(Role::kParameter)];
    const at::Tensor right = parameter.clone();
    parameter.copy_(twins.before[static_cast<std::size_t>(unit)]);
    EXPECT_GT(by_gradients(twins), 100 * kNoise) << unit;
    parameter.copy_(right).mul_(2).sub_(twins.before[static_cast<std::size_t>(unit)]);
    EXPECT_GT(by_gradients(twins), 100 * kNoise) << unit;
    parameter.copy_(right);
  }
  twins.noisy.segments[2][static_cast<std::size_t>(Role::kParameter)][0] = std::nan("");
  EXPECT_TRUE(std::isinf(by_gradients(twins)));
}

TEST(Compare, RunsAreHeldToWhatUpdatesCanReach) {
  Twins twins = twins_with(1.0);  // the last gradients have little in common
  const double farthest =
      2 * twins.settings.lr *
      (optim::largest_move(twins.settings, 1) + optim::largest_move(twins.settings, 2));
  const auto error = [&] {
    return compare_reached(twins.model, twins.noisy, twins.exact, farthest, 2).error;
  };
  EXPECT_LE(error(), 1);
  EXPECT_GT(error(), 0.2);
  twins.noisy.segments[1][static_cast<std::size_t>(Role::kParameter)].add_(farthest + 1e-5);
  EXPECT_GT(error(), 1);
}

}  // namespace
}  // namespace lockstep::verify
