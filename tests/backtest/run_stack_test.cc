#include "lockstep/backtest/run_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::backtest {
namespace {

// A row of a table that has these columns alone; what is not named is empty.
class Described {
 public:
  explicit Described(const std::vector<std::pair<std::string, std::string>>& cells) {
    std::vector<std::string> values;
    for (const auto& [column, value] : cells) columns_.push_back(column), values.push_back(value);
    for (const char* column : {"source", "source_locator", "notes", "schedule", "year", "arch",
                               "precision", "flash_attention", "interconnect_inter", "gpu"})
      if (std::find(columns_.begin(), columns_.end(), column) == columns_.end())
        columns_.emplace_back(column), values.emplace_back();
    rows_.emplace_back(&columns_, values);
  }
  const PublishedRun& run() const { return rows_.front(); }

 private:
  std::vector<std::string> columns_;
  std::vector<PublishedRun> rows_;
};

// DeepSpeed runs Megatron's kernels, without what Megatron has added since 2021; its engine has
// habits of its own.
TEST(RunStack, DeepSpeedHasMegatronsKernels) {
  EXPECT_EQ(
      stack_class_of(
          Described({{"schedule", "1F1B (DeepSpeed)"}, {"year", "2022"}, {"arch", "gpt"}}).run(),
          1),
      StackClass::kOther);
  const Described row({{"notes", "Megatron-DeepSpeed"},
                       {"year", "2024"},
                       {"arch", "gpt"},
                       {"precision", "fp16"},
                       {"flash_attention", "0"}});
  EXPECT_EQ(stack_class_of(row.run(), 1), StackClass::kTuned);
  const cost::Stack stack = stack_of(row.run(), 1);
  EXPECT_FALSE(stack.overlap_tensor);
  EXPECT_FALSE(stack.fused_sums);
  EXPECT_TRUE(stack.whole_reduce);
  EXPECT_EQ(stack.loss, cost::Loss::kVocabulary);
  EXPECT_EQ(stack.grad_bytes, 2);
}

TEST(RunStack, ShardedTrainersAreEagerUnlessCompiled) {
  const auto stack = [](const char* notes, const char* year = "2024") {
    return stack_of(
        Described({{"notes", notes}, {"year", year}, {"arch", "llama"}, {"flash_attention", "1"}})
            .run(),
        3);
  };
  const cost::Stack eager = stack("default configuration"), compiled = stack("torch.compile");
  EXPECT_EQ(eager.loss, cost::Loss::kTorch);
  EXPECT_FALSE(eager.fused_passes);
  EXPECT_EQ(compiled.loss, cost::Loss::kTorch);
  EXPECT_EQ(stack("torch.compile", "2025").loss, cost::Loss::kFused);
  EXPECT_TRUE(compiled.fused_passes);
  EXPECT_LT(compiled.host_factor, eager.host_factor);
  EXPECT_EQ(eager.weight_bytes + eager.grad_bytes + eager.optimizer_bytes, 16);
}

TEST(RunStack, TheVendorsOwnShardingHasItsKernels) {
  const Described row({{"source", "nvidia-megatron-bridge"}, {"year", "2025"}, {"arch", "llama"}});
  EXPECT_EQ(stack_class_of(row.run(), 3), StackClass::kTuned);
  const cost::Stack stack = stack_of(row.run(), 3);
  EXPECT_EQ(stack.loss, cost::Loss::kFused);
  EXPECT_TRUE(stack.fused_passes);
}

// Its trainer sums whole gradients in f32 whatever it keeps; DeepSpeed's what it keeps.
TEST(RunStack, WhatGoesOverTheWire) {
  const cost::Stack aleph = stack_of(
      Described({{"notes", "kernel: torch"}, {"year", "2023"}, {"precision", "bf16"}}).run(), 1);
  EXPECT_TRUE(aleph.whole_reduce);
  EXPECT_EQ(aleph.reduce_bytes, 4);
  EXPECT_EQ(aleph.grad_bytes, 2);
  EXPECT_EQ(aleph.bucket_bytes, 0);
  const cost::Stack deepspeed = stack_of(
      Described({{"schedule", "1F1B (DeepSpeed)"}, {"year", "2022"}, {"precision", "fp16"}}).run(),
      1);
  EXPECT_TRUE(deepspeed.whole_reduce);
  EXPECT_EQ(deepspeed.reduce_bytes, 2);
  EXPECT_EQ(deepspeed.bucket_bytes, 3e9);
}

TEST(RunStack, MegatronTuringHasDeepSpeedsPipeline) {
  const Described row({{"source", "mt-nlg-530b"}, {"year", "2022"}});
  EXPECT_EQ(stack_class_of(row.run(), 0), StackClass::kOther);
}

// PyTorch hides tensor-parallel collectives when asked to; its attention is FlashAttention-2.
TEST(RunStack, PlainTorchHasNoKernelsOfItsOwn) {
  const auto stack = [](const char* source, const char* notes) {
    return stack_of(
        Described({{"source", source}, {"notes", notes}, {"schedule", "FSDP+TP"}, {"year", "2025"}})
            .run(),
        3);
  };
  const cost::Stack plain = stack("pytorch-torchtitan", "vanilla TP");
  EXPECT_FALSE(plain.overlap_tensor);
  EXPECT_TRUE(plain.torch_attention);
  EXPECT_TRUE(stack("pytorch-torchtitan", "async TP").overlap_tensor);
  const cost::Stack vendors = stack("nvidia-megatron-bridge", "");
  EXPECT_TRUE(vendors.overlap_tensor);
  EXPECT_FALSE(vendors.torch_attention);
}

// Who is named is priced as plans for it are, but for what the row says besides.
TEST(RunStack, NamedSoftwareHasARow) {
  const auto row = [](const char* notes, int zero = 3) {
    const Described described(
        {{"notes", notes}, {"year", "2025"}, {"arch", "llama"}, {"flash_attention", "1"}});
    return std::pair(stack_of(described.run(), zero), stack_class_of(described.run(), zero));
  };
  const auto sharded = StackClass::kSharded;
  EXPECT_EQ(row("transformers Trainer", 0), std::pair(cost::transformers_stack(0), sharded));
  EXPECT_EQ(row("LLaMA-Factory, full"), std::pair(cost::fsdp2_stack(3), sharded));
  EXPECT_EQ(row("axolotl full fine-tune"), std::pair(cost::finetune_stack(3), sharded));
  EXPECT_EQ(row("torchao float8"), std::pair(cost::fsdp2_stack(3), sharded));
  EXPECT_EQ(row("axolotl, DeepSpeed ZeRO-3"),
            std::pair(cost::deepspeed_stack(3), StackClass::kOther));
  EXPECT_EQ(row("llm.c", 1), std::pair(cost::llmc_stack(1), StackClass::kTuned));
  EXPECT_EQ(row("torchao float8, torch.compile").second, StackClass::kTuned);
  EXPECT_NE(row("my own framework").first, cost::fsdp2_stack(3));
  const cost::Stack liger = row("axolotl with Liger kernels").first;
  EXPECT_TRUE(liger.fused_norms && liger.fused_passes);
  EXPECT_EQ(liger.loss, cost::Loss::kFused);
  EXPECT_EQ(row("accelerate, fp8 by TransformerEngine").first.cast_bytes, 0);
  EXPECT_FALSE(row("axolotl, flash_attention_3").first.torch_attention);
}

TEST(RunStack, Nanotron) {
  const Described row({{"source", "hf-nanotron"}, {"year", "2025"}, {"arch", "llama"}});
  const cost::Stack sharded = stack_of(row.run(), 1), whole = stack_of(row.run(), 0);
  EXPECT_FALSE(sharded.overlap_data);
  EXPECT_TRUE(whole.overlap_data);
  EXPECT_EQ(sharded.grad_bytes, 4);
  EXPECT_TRUE(sharded.keeps_gathered);
  EXPECT_EQ(sharded.ddp_buckets, 2);
}

TEST(RunStack, HabitsFollowTheClass) {
  const StackHabits habits{0.1, 0.2, 0.01, 0.02, 0.5};
  cost::Stack stack;
  set_habits(habits, StackClass::kTuned, stack);
  EXPECT_EQ(stack.gaps, 0);
  EXPECT_EQ(stack.jitter, 0.01);
  EXPECT_EQ(stack.network_share, 1);
  set_habits(habits, StackClass::kOther, stack);
  EXPECT_EQ(stack.gaps, 0.2);
  EXPECT_EQ(stack.jitter, 0.02);
  EXPECT_EQ(stack.network_share, 0.5);
}

}  // namespace
}  // namespace lockstep::backtest
