#include <gtest/gtest.h>

#include "lockstep/model/catalog.h"
#include "lockstep/parts/unit_passes.h"
#include "tests/support/activation_bytes.h"

namespace lockstep::parts {
namespace {

using model::describe;
using model::Drop;
using model::find;
using model::Model;
using model::ModelConfig;
using model::UnitSizes;

std::vector<Held> stash_of(const Model& model, const UnitSizes& sizes, int unit = 1) {
  return UnitPasses(model.config, model.unit(unit), sizes).stash();
}
std::vector<Held> work_of(const Model& model, const UnitSizes& sizes, int unit = 1) {
  return UnitPasses(model.config, model.unit(unit), sizes).work();
}

constexpr Drop kDropCheap = {true, true, true};

// Of one token, without the factors of the two norms, which the closed form leaves out.
std::int64_t table_bytes(const Model& model, const UnitSizes& sizes) {
  std::int64_t bytes = 0;
  for (const Held& tensor : stash_of(model, sizes))
    if (!tensor.name.ends_with("_rstd")) bytes += tensor.bytes;
  return bytes;
}

// A = 8h + 4q + 4k + 6f + 4a bytes per token in bf16, and the values that published models give.
TEST(UnitPasses, BlocksAddUpToTheClosedForm) {
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
    EXPECT_EQ(total(stash_of(model, {.dtype = DType::kF64})), 4 * row.all - 8 * c.heads + 16);
    EXPECT_EQ(total(stash_of(model, {.dtype = DType::kBF16})), row.all + 8);
  }
}

// Tensor parallelism leaves the residual path whole, 8 bytes for each of its elements in 16 bits;
// sequence parallelism divides that too.
TEST(UnitPasses, DegreesDivideWhatTheyShare) {
  const Model model = *describe(find("llama3-405b")->config);
  const ModelConfig& c = model.config;
  UnitSizes sizes{.seq = 8192, .dtype = DType::kBF16};
  const std::int64_t whole = table_bytes(model, sizes);
  const std::int64_t path = 8192 * 8 * c.hidden;
  const std::int64_t boundary = boundary_bytes(c, sizes);
  sizes.tp = 8;
  EXPECT_EQ(table_bytes(model, sizes), path + (whole - path) / 8);
  EXPECT_EQ(boundary_bytes(c, sizes), boundary);
  sizes.sequence_parallel = true;
  EXPECT_EQ(table_bytes(model, sizes), whole / 8);  // 533 MB a layer and microbatch
  EXPECT_EQ(boundary_bytes(c, sizes), boundary / 8);
}

TEST(UnitPasses, OnlyDroppedRowsAreMissing) {
  const Model model = *describe(find("llama-tiny")->config);
  const auto all = stash_of(model, {.seq = 16});
  for (int mask = 0; mask < 8; ++mask) {
    const Drop drop = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    std::vector<Held> expected;
    for (const Held& tensor : all) {
      const bool dropped = (drop.attn_normed && tensor.name == "attn_normed") ||
                           (drop.mlp_normed && tensor.name == "mlp_normed") ||
                           (drop.product && tensor.name == "product");
      if (!dropped) expected.push_back(tensor);
    }
    EXPECT_EQ(stash_of(model, {.seq = 16, .drop = drop}), expected);
  }
}

TEST(UnitPasses, EmbeddingAndHeadKeepOneBoundaryTensor) {
  const Model model = *describe(find("llama-tiny")->config);
  const UnitSizes sizes{.batch = 2, .seq = 16};
  const std::int64_t boundary = 2 * 16 * 64 * 4;
  EXPECT_EQ(boundary_bytes(model.config, sizes), boundary);
  EXPECT_EQ(total(stash_of(model, sizes, 0)), 0);
  EXPECT_EQ(total(work_of(model, sizes, 0)), boundary);
  EXPECT_EQ(total(stash_of(model, sizes, 5)), boundary);
  EXPECT_EQ(total(work_of(model, sizes, 5)), 0);
  EXPECT_EQ(rope_bytes(model.config, sizes), 2 * 16 * 8 * 4);
  // 4h + 2q + 2k + 3f elements a token, and two gains.
  EXPECT_EQ(total(work_of(model, sizes)), 4 * (32 * (4 * 64 + 2 * 64 + 2 * 32 + 3 * 176) + 2 * 64));
}

// The factors 10 + 24 / t and 34 / t of Korthikanti et al. (arXiv 2205.05198, table 2) from our own
// table of a GPT block in 16 bits. Theirs has, beside ours, the masks of two dropouts on the path,
// a byte an element, which a model without dropout has not, and the scores, 5as/h, which flash
// attention does not store. Ours has, beside theirs, what norms and the softmax know of each row.
TEST(UnitPasses, AGptBlockHasTheFactorsOfKorthikanti) {
  const Model model = *describe(find("gpt3-175b")->config);
  const ModelConfig& c = model.config;
  for (const std::int64_t tp : {1, 2, 8})
    for (const bool sp : {false, true}) {
      const UnitSizes sizes{
          .batch = 3, .seq = 2048, .dtype = DType::kBF16, .tp = tp, .sequence_parallel = sp};
      std::int64_t bytes = 0;
      for (const Held& tensor : stash_of(model, sizes)) {
        const bool per_row = tensor.name.ends_with("_mean") || tensor.name.ends_with("_rstd") ||
                             tensor.name == "attn_lse";
        if (!per_row) bytes += tensor.bytes;
      }
      const std::int64_t sbh = sizes.tokens() * c.hidden;
      const std::int64_t masks = 2 * sbh / (sp ? tp : 1);
      EXPECT_EQ(bytes + masks, sp ? 34 * sbh / tp : 10 * sbh + 24 * sbh / tp);
      EXPECT_EQ(static_cast<double>(bytes + masks),
                model::gpt_block_bytes({sizes.seq, sizes.batch, c.hidden, c.heads}, tp, sp,
                                       model::Recompute::kAttention));
    }
}

// What traits add to the tables of a llama: means, biases, gains of heads; what they take away.
TEST(UnitPasses, TraitsShowInTheTables) {
  const UnitSizes sizes{.batch = 2, .seq = 16};
  const auto names = [&](const char* row, auto tables) {
    const Model model = *describe(find(row)->config);
    std::string all;
    for (const Held& tensor : tables(model, sizes, 1)) all += tensor.name + " ";
    return all;
  };
  const std::string stash =
      "input input_rstd attn_normed qkv attn_out attn_lse middle middle_rstd mlp_normed gate_up "
      "product ";
  for (const char* row : {"llama3-8b", "mistral-7b", "qwen2-7b", "qwen3-8b"})
    EXPECT_EQ(names(row, stash_of), stash) << row;
  EXPECT_EQ(names("gpt2-small", stash_of),
            "input input_mean input_rstd attn_normed qkv attn_out attn_lse middle middle_mean "
            "middle_rstd mlp_normed gate_up product ");
  EXPECT_EQ(names("olmo2-7b", stash_of),
            "input qkv q_rstd k_rstd attn_out attn_lse attn_out_sum attn_out_sum_rstd middle "
            "gate_up product down_sum down_sum_rstd ");
  EXPECT_EQ(names("gemma2-2b", stash_of),
            "input input_rstd attn_normed qkv attn_out attn_lse attn_out_sum attn_out_sum_rstd "
            "middle middle_rstd mlp_normed gate_up product down_sum down_sum_rstd ");
  // In the order in which W reads it: what the block's last part needs comes first.
  const std::string mlp = "product d_out mlp_normed d_gate_up d_mlp_norm ";
  const std::string attention = "attn_out d_middle ", qkv = "attn_normed d_qkv d_attn_norm ";
  EXPECT_EQ(names("mistral-7b", work_of), mlp + attention + qkv);
  EXPECT_EQ(names("qwen2-7b", work_of), mlp + attention + "d_qkv_bias " + qkv);
  EXPECT_EQ(names("qwen3-8b", work_of), mlp + attention + "d_k_norm d_q_norm " + qkv);
  EXPECT_EQ(names("gpt2-small", work_of),
            "d_down_bias product d_out d_gate_up_bias mlp_normed d_gate_up d_mlp_norm "
            "d_mlp_norm_bias d_attn_out_bias " +
                attention + "d_qkv_bias " + qkv + "d_attn_norm_bias ");
  EXPECT_EQ(rope_bytes(find("gpt2-small")->config, sizes), 0);
}

}  // namespace
}  // namespace lockstep::parts
