#include "tests/support/activation_bytes.h"

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

// The four models of Korthikanti et al. (arXiv 2205.05198), table 3, all with s = 2048 and t = 8,
// and the activation memory of figure 1 as computed by Calculon's validation, in GiB.
struct Figure {
  std::int64_t batch, hidden, heads, layers;
  double pipeline, chunks;
  double tensor_only_gib, sp_selective_gib;
  double selective_percent, full_percent;  // figure 7, of tensor parallel only
};
constexpr Figure kFigures[] = {
    {4, 6144, 64, 48, 1, 1, 59.25, 9.56, 16.1, 7.6},
    {1, 12288, 96, 96, 8, 3, 66.84, 12.35, 18.5, 8.7},
    {1, 20480, 128, 105, 35, 3, 114.02, 23.08, 20.2, 9.5},
    {1, 25600, 160, 128, 64, 0, 131.25, 26.56, 20.2, 9.5},
};

TEST(ActivationBytes, ReproduceTheFiguresOfKorthikanti) {
  for (const Figure& f : kFigures) {
    const BlockShape shape{2048, f.batch, f.hidden, f.heads};
    // The first stage keeps as many microbatches as there are stages, so the blocks of the whole
    // model; interleaving adds 1 + (p - 1) / (p v). The 1T model is not interleaved.
    const double interleave = f.chunks > 0 ? 1 + (f.pipeline - 1) / (f.pipeline * f.chunks) : 1.0;
    const double blocks = static_cast<double>(f.layers) * interleave / (1024.0 * 1024 * 1024);
    const double tensor_only = gpt_block_bytes(shape, 8, false, Recompute::kNone);
    const double selective = gpt_block_bytes(shape, 8, true, Recompute::kAttention);
    const double full = gpt_block_bytes(shape, 8, false, Recompute::kBlock);
    EXPECT_NEAR(tensor_only * blocks, f.tensor_only_gib, 0.01);
    EXPECT_NEAR(selective * blocks, f.sp_selective_gib, 0.01);
    EXPECT_NEAR(100 * selective / tensor_only, f.selective_percent, 0.2);
    EXPECT_NEAR(100 * full / tensor_only, f.full_percent, 0.2);
  }
}

}  // namespace
}  // namespace lockstep::model
