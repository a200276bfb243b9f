#include "lockstep/hf/directory_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/checkpoint/slice.h"
#include "tests/hf/tiny.h"

namespace lockstep::hf {
namespace {

// What write_directory stores in f32 is what the source reads, in pieces of whole rows too.
TEST(DirectorySource, ReadsWhatWasWritten) {
  for (const model::ModelConfig& config : tiny_models()) {
    SCOPED_TRACE(config.name);
    const std::string parent = fresh_folder("source");
    std::filesystem::create_directory(parent);
    const std::string folder = parent + "/" + config.name;
    const model::Model model = *model::describe(config);
    DrawnParams drawn;
    ASSERT_TRUE(write_directory(model, *config_json(config, DType::kF32), drawn, hasty_disk(),
                                folder, {DType::kF32})
                    .ok());
    config::Report report;
    const auto directory = open_directory(folder, report);
    ASSERT_TRUE(directory) << report.text(folder, false);
    DirectorySource source(*directory);
    EXPECT_EQ(source.type(), DType::kF32);
    ASSERT_EQ(drawn.type(), DType::kF32);
    for (const checkpoint::Slice& slice :
         checkpoint::model_slices(model, checkpoint::Role::kWeight)) {
      const auto bytes = static_cast<std::size_t>(slice.size()) * 4;
      std::vector<std::byte> wanted(bytes), read(bytes);
      ASSERT_TRUE(drawn.read(slice.tensor, slice.shape, 0, wanted).ok());
      // A row, then the rest, which begins inside an expert where there are some.
      const std::int64_t row = slice.shape.size() > 1 ? slice.shape.back() : 1;
      const auto first = static_cast<std::size_t>(row) * 4;
      ASSERT_TRUE(source.read(slice.tensor, slice.shape, 0, std::span(read).first(first)).ok());
      ASSERT_TRUE(source.read(slice.tensor, slice.shape, row, std::span(read).subspan(first)).ok());
      EXPECT_TRUE(read == wanted) << slice.tensor;
    }
  }
}

}  // namespace
}  // namespace lockstep::hf
