#include "lockstep/model/state_bytes.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::model {
namespace {

TEST(StateBytes, WidthsOfTheUsualPrecisions) {
  EXPECT_EQ(adam_widths(DType::kBF16, DType::kF32), (StateWidths{2, 4, 12}));
  EXPECT_EQ(adam_widths(DType::kBF16, DType::kBF16), (StateWidths{2, 2, 12}));
  // In f32 the working weights are the master copy.
  EXPECT_EQ(adam_widths(DType::kF32, DType::kF32), (StateWidths{4, 4, 8}));
  EXPECT_EQ(adam_widths(DType::kF64, DType::kF64), (StateWidths{8, 8, 16}));
}

TEST(StateBytes, EachStageShardsOneMoreKind) {
  const StateWidths widths{2, 4, 12};
  for (const std::int64_t group : {1, 2, 8, 1000}) {
    const auto n = static_cast<double>(group);
    const StateShare whole = state_share(widths, 0, group);
    EXPECT_EQ(whole.total(), 18);
    EXPECT_EQ(state_share(widths, 1, group).total(), 6 + 12 / n);
    EXPECT_EQ(state_share(widths, 2, group).total(), 2 + (4 / n + 12 / n));
    EXPECT_DOUBLE_EQ(state_share(widths, 3, group).total(), 18 / n);
    for (int zero = 0; zero <= 3; ++zero) {
      const StateShare share = state_share(widths, zero, group);
      EXPECT_EQ(share.optimizer, zero >= 1 ? 12 / n : 12);
      EXPECT_EQ(share.grads, zero >= 2 ? 4 / n : 4);
      EXPECT_EQ(share.weights, zero >= 3 ? 2 / n : 2);
    }
  }
}

TEST(StateBytes, RefusesStagesThatDoNotExist) {
  EXPECT_THROW(state_share({}, 4, 8), BrokenInvariant);
  EXPECT_THROW(state_share({}, -1, 8), BrokenInvariant);
  EXPECT_THROW(state_share({}, 1, 0), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::model
