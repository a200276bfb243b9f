#include "lockstep/model/unit_bytes.h"

#include <gtest/gtest.h>

#include "lockstep/model/catalog.h"

namespace lockstep::model {
namespace {

TEST(UnitBytes, ModelsWithoutTablesAreRefusedByField) {
  for (const auto& [row, field] :
       {std::pair{"deepseek-v3", "family"}, {"deepseek-tiny", "family"}, {"olmo-7b", "norm is"}}) {
    const Result<void> checked = check_unit_bytes(find(row)->config);
    ASSERT_FALSE(checked.ok()) << row;
    EXPECT_NE(checked.error().message.find(field), std::string::npos) << checked.error().message;
  }
  for (const char* row : {"llama2-7b", "llama3.2-1b", "yi-34b", "llama-tiny", "gpt2-small",
                          "qwen2-7b", "mixtral-8x7b", "qwen2-57b-a14b", "qwen3-30b-a3b", "qwen3-8b",
                          "mistral-7b", "olmo2-7b", "gemma2-2b"})
    EXPECT_TRUE(check_unit_bytes(find(row)->config).ok()) << row;
}

}  // namespace
}  // namespace lockstep::model
