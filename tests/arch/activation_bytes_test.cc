#include "lockstep/arch/activation_bytes.h"

#include <gtest/gtest.h>

#include "lockstep/arch/catalog.h"

namespace lockstep::arch {
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

// A = 8h + 4q + 4kv + 6f + 4a bytes per token in bf16.
TEST(ActivationBytes, LlamaBlocksAddUpToTheClosedForm) {
  struct Row {
    const char* name;
    double all, without_cheap;
  };
  for (const Row& row : {Row{"llama3-8b", 139'392, 0}, Row{"llama3-70b", 274'688, 0},
                         Row{"llama3-405b", 520'704, 348'672}}) {
    const Model model = *describe(find(row.name)->config);
    double all = 0;
    double kept = 0;
    double whole = 0;
    for (const SavedTensor& tensor : saved_tensors(model.config, model.unit(1), 2)) {
      all += tensor.bytes;
      if (!tensor.cheap) kept += tensor.bytes;
      if (!tensor.divided) whole += tensor.bytes;
    }
    EXPECT_EQ(all, row.all) << row.name;
    if (row.without_cheap > 0) {
      EXPECT_EQ(kept, row.without_cheap) << row.name;
    }
    EXPECT_EQ(whole, 8.0 * static_cast<double>(model.config.hidden)) << row.name;
  }
}

}  // namespace
}  // namespace lockstep::arch
