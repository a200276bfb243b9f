#include "lockstep/verify/image.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace lockstep::verify {
namespace {

std::vector<StepImage> blank_images() {
  std::vector<StepImage> images(2);
  for (StepImage& image : images) {
    image.units.resize(2);
    for (auto& unit : image.units)
      for (at::Tensor& role : unit) role = at::zeros({4}, at::TensorOptions(at::kDouble));
  }
  return images;
}

// Layouts of one class are told apart by it alone, so no number may be left out, nor the sign of a zero.
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
  for (const std::size_t unit : {0, 1})
    for (std::size_t role = 0; role < kNumRoles; ++role)
      for (const std::int64_t element : {0, 3})
        change([&](StepImage& image) {
          image.units[unit][role].mutable_data_ptr<double>()[element] = -0.0;
        });
  EXPECT_EQ(seen.size(), 1u + 2 * (3 + 2 * kNumRoles * 2));
}

}  // namespace
}  // namespace lockstep::verify
