#include "lockstep/hf/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/files/durable.h"
#include "tests/hf/tiny.h"

namespace lockstep::hf {
namespace {

void write_file(const std::string& path, const std::vector<std::string>& names) {
  std::vector<files::TensorInfo> infos;
  for (const std::string& name : names) infos.push_back({name, files::ElementType::kF32, {1}});
  files::SafetensorsWriter writer(hasty_disk(), path, infos, {}, files::kLeastAlign);
  const std::vector<float> zeros(names.size());
  writer.write(std::as_bytes(std::span(zeros)));
  writer.finish();
}

std::string two_files(const std::string& index) {
  std::string folder = fresh_folder("weights");
  std::filesystem::create_directory(folder);
  write_file(folder + "/one.safetensors", {"a", "b"});
  write_file(folder + "/two.safetensors", {"c"});
  std::ofstream(folder + "/model.safetensors.index.json") << index;
  return folder;
}

std::string trouble(const std::string& folder) {
  config::Report report;
  const bool opened = Weights::open(folder, report).has_value();
  EXPECT_EQ(opened, report.ok());
  return report.text(folder, false);
}

TEST(Weights, ShardsAreReadByTheirIndex) {
  const std::string folder = two_files(
      R"({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  config::Report report;
  const auto weights = Weights::open(folder, report);
  ASSERT_TRUE(weights) << report.text(folder, false);
  EXPECT_EQ(weights->num_files(), 2U);
  EXPECT_EQ(weights->all().size(), 3U);
  EXPECT_EQ(weights->find("c")->file, "two.safetensors");
  EXPECT_EQ(weights->find("d"), nullptr);
}

TEST(Weights, AnIndexThatLiesIsRefused) {
  const std::string wrong = trouble(two_files(
      R"({"weight_map": {"a": "two.safetensors", "c": "two.safetensors", "x": "one.safetensors"}})"));
  EXPECT_NE(wrong.find("`a` is not in two.safetensors"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("`x` is not in one.safetensors"), std::string::npos) << wrong;
  EXPECT_NE(
      trouble(two_files(R"({"weight_map": {"a": "gone.safetensors", "b": "off.safetensors"}})"))
          .find("off.safetensors"),
      std::string::npos);
  EXPECT_NE(
      trouble(two_files(R"({"weight_map": {"a": "../one.safetensors"}})")).find("same folder"),
      std::string::npos);
  EXPECT_FALSE(trouble(two_files("{")).empty());
  EXPECT_FALSE(trouble(two_files("[]")).empty());
}

TEST(Weights, BrokenAndMissingFilesAreNamed) {
  const std::string folder =
      two_files(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})");
  std::filesystem::resize_file(folder + "/one.safetensors", 40);
  const std::string text = trouble(folder);
  EXPECT_NE(text.find("one.safetensors"), std::string::npos) << text;
  EXPECT_NE(text.find("LS0821"), std::string::npos) << text;
  const std::string empty = fresh_folder("empty");
  std::filesystem::create_directory(empty);
  EXPECT_NE(trouble(empty).find("neither model.safetensors"), std::string::npos);
  std::ofstream(empty + "/pytorch_model.bin") << "pickle";
  EXPECT_NE(trouble(empty).find("save_pretrained"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::hf
