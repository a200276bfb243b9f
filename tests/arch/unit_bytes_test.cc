#include "lockstep/arch/unit_bytes.h"

#include <gtest/gtest.h>

#include "lockstep/arch/catalog.h"

namespace lockstep::arch {
namespace {

constexpr Drop kDropCheap = {true, true, true};

// Of one token, without the factors of the two norms, which the closed form leaves out.
std::int64_t table_bytes(const Model& model, const UnitSizes& sizes) {
  std::int64_t bytes = 0;
  for (const UnitTensor& tensor : stash_tensors(model.config, model.unit(1), sizes))
    if (!tensor.name.ends_with("_rstd")) bytes += tensor.bytes;
  return bytes;
}

// A = 8h + 4q + 4k + 6f + 4a bytes per token in bf16, and the values that published models give.
TEST(UnitBytes, BlocksAddUpToTheClosedForm) {
  struct Row {
    const char* name;
    std::int64_t all, dropped;
  };
  for (const Row& row : {Row{"llama3-8b", 139'392, 139'392 - 4 * 4096 - 2 * 14336},
                         {"llama3-70b", 274'688, 274'688 - 4 * 8192 - 2 * 28672},
                         {"llama3-405b", 520'704, 348'672}}) {
    const Model model = *describe(find(row.name)->config);
    const ModelConfig& c = model.config;
    const std::int64_t q = c.heads * c.head_dim;
    const std::int64_t k = c.kv_heads * c.head_dim;
    EXPECT_EQ(row.all, 8 * c.hidden + 4 * q + 4 * k + 6 * c.ffn + 4 * c.heads);
    EXPECT_EQ(table_bytes(model, {.dtype = DType::kBF16}), row.all) << row.name;
    EXPECT_EQ(table_bytes(model, {.dtype = DType::kBF16, .drop = kDropCheap}), row.dropped);
    EXPECT_EQ(table_bytes(model, {.batch = 3, .seq = 7, .dtype = DType::kBF16}), 21 * row.all);
    // Twice the width, but a log-sum-exp that is f32 in both; in f64 everything doubles again.
    EXPECT_EQ(table_bytes(model, {.dtype = DType::kF32}), 2 * row.all - 4 * c.heads);
    EXPECT_EQ(table_bytes(model, {.dtype = DType::kF64}), 4 * row.all - 8 * c.heads);
    EXPECT_EQ(total(stash_tensors(c, model.unit(1), {.dtype = DType::kF64})),
              4 * row.all - 8 * c.heads + 16);
  }
}

// Tensor parallelism leaves the residual path whole, sequence parallelism divides that too: 10 + 24 / t
// and 34 / t of Korthikanti et al. (arXiv 2205.05198, table 2), whose 10 holds the masks of two
// dropouts, a byte each, that a llama block has not.
TEST(UnitBytes, DegreesDivideWhatTheyShare) {
  const Model model = *describe(find("llama3-405b")->config);
  const ModelConfig& c = model.config;
  UnitSizes sizes{.seq = 8192, .dtype = DType::kBF16};
  const std::int64_t whole = table_bytes(model, sizes);
  const std::int64_t path = 8192 * (10 - 2) * c.hidden;
  const std::int64_t boundary = boundary_bytes(c, sizes);
  sizes.tp = 8;
  EXPECT_EQ(table_bytes(model, sizes), path + (whole - path) / 8);
  EXPECT_EQ(boundary_bytes(c, sizes), boundary);
  sizes.sequence_parallel = true;
  EXPECT_EQ(table_bytes(model, sizes), whole / 8);  // 533 MB a layer and microbatch
  EXPECT_EQ(boundary_bytes(c, sizes), boundary / 8);
}

TEST(UnitBytes, OnlyDroppedRowsAreMissing) {
  const Model model = *describe(find("llama-tiny")->config);
  const auto all = stash_tensors(model.config, model.unit(1), {.seq = 16});
  for (int mask = 0; mask < 8; ++mask) {
    const Drop drop = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    std::vector<UnitTensor> expected;
    for (const UnitTensor& tensor : all) {
      const bool dropped = (drop.attn_normed && tensor.name == "attn_normed") ||
                           (drop.mlp_normed && tensor.name == "mlp_normed") ||
                           (drop.product && tensor.name == "product");
      if (!dropped) expected.push_back(tensor);
      if (dropped) {
        EXPECT_TRUE(tensor.cheap);
      }
    }
    EXPECT_EQ(stash_tensors(model.config, model.unit(1), {.seq = 16, .drop = drop}), expected);
  }
}

TEST(UnitBytes, EmbeddingAndHeadKeepOneBoundaryTensor) {
  const Model model = *describe(find("llama-tiny")->config);
  const UnitSizes sizes{.batch = 2, .seq = 16};
  const std::int64_t boundary = 2 * 16 * 64 * 4;
  EXPECT_EQ(boundary_bytes(model.config, sizes), boundary);
  EXPECT_EQ(total(stash_tensors(model.config, model.unit(0), sizes)), 0);
  EXPECT_EQ(total(work_tensors(model.config, model.unit(0), sizes)), boundary);
  EXPECT_EQ(total(stash_tensors(model.config, model.unit(5), sizes)), boundary);
  EXPECT_EQ(total(work_tensors(model.config, model.unit(5), sizes)), 0);
  EXPECT_EQ(rope_bytes(model.config, sizes), 2 * 16 * 8 * 4);
  // 4h + 2q + 2k + 3f elements a token, and two gains.
  EXPECT_EQ(total(work_tensors(model.config, model.unit(1), sizes)),
            4 * (32 * (4 * 64 + 2 * 64 + 2 * 32 + 3 * 176) + 2 * 64));
}

TEST(UnitBytes, ModelsWithoutTablesAreRefusedByField) {
  for (const auto& [row, field] : {std::pair{"gpt2-small", "family"},
                                   {"mixtral-8x7b", "family"},
                                   {"qwen2-7b", "qkv_bias"},
                                   {"qwen3-8b", "qk_norm"},
                                   {"mistral-7b", "window"},
                                   {"olmo-7b", "norm is"},
                                   {"olmo2-7b", "norm_place"}}) {
    const Result<void> checked = check_unit_bytes(find(row)->config);
    ASSERT_FALSE(checked.ok()) << row;
    EXPECT_NE(checked.error().message.find(field), std::string::npos) << checked.error().message;
  }
  for (const char* row : {"llama2-7b", "llama3.2-1b", "yi-34b", "llama-tiny"})
    EXPECT_TRUE(check_unit_bytes(find(row)->config).ok()) << row;
}

}  // namespace
}  // namespace lockstep::arch
