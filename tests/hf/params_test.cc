#include "lockstep/hf/import.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "lockstep/files/elements.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/export.h"
#include "tests/hf/tiny.h"

namespace lockstep::hf {
namespace {

model::Model model_of(const model::ModelConfig& config) { return *model::describe(config); }

std::string exported(const model::ModelConfig& config, const ExportSettings& settings,
                     Exported* told = nullptr) {
  const std::string folder = fresh_folder("export");
  DrawnParams params;
  const Exported done = *write_directory(model_of(config), *config_json(config, settings.stored),
                                         params, hasty_disk(), folder, settings);
  if (told != nullptr) *told = done;
  return folder;
}

// Every parameter as it is found in the folder, compared with what was drawn.
void expect_drawn(const model::ModelConfig& config, const std::string& folder, DType stored) {
  config::Report report;
  const auto weights = Weights::open(folder, report);
  ASSERT_TRUE(weights) << report.text(folder, false);
  const model::Model model = model_of(config);
  const auto params = HfParams::find(model, *weights, report);
  ASSERT_TRUE(params) << report.text(folder, false);
  std::int64_t compared = 0;
  std::map<std::string, std::int64_t> done;
  for (const HfParams::Place& place : params->places()) {
    std::vector<float> got(static_cast<std::size_t>(place.piece.numel()));
    const bool is_wide = place.name.ends_with("router.bias");  // in every directory
    EXPECT_EQ(place.type, is_wide ? DType::kF32 : stored) << place.name;
    std::vector<std::byte> rows(got.size() * size_of(place.type));
    HfParams::read(place, 0, rows);
    files::convert(rows, place.type, std::as_writable_bytes(std::span(got)), DType::kF32);
    const RandomStream stream = stream_of(place.name);
    std::int64_t& before = done[place.name];  // of experts in front of this one
    for (std::size_t i = 0; i < got.size(); ++i) {
      float wanted = drawn(stream, before + static_cast<std::int64_t>(i));
      if (place.type == DType::kBF16)
        wanted = std::bit_cast<float>(static_cast<std::uint32_t>(files::f32_to_bf16(wanted)) << 16);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted))
          << config.name << " " << place.name << " " << i;
    }
    before += place.piece.numel();
    compared += place.piece.numel();
  }
  EXPECT_EQ(compared, model::count(model).total) << config.name;
}

TEST(HfParams, WhatIsExportedIsFoundAgain) {
  for (const model::ModelConfig& config : tiny_models())
    for (const DType stored : {DType::kF32, DType::kBF16})
      for (const Bytes shard : {kShardLimit, Bytes{30000}}) {
        Exported done;
        const std::string folder = exported(config, {stored, shard}, &done);
        expect_drawn(config, folder, stored);
        EXPECT_EQ(done.files > 1, shard != kShardLimit);
        EXPECT_EQ(std::filesystem::exists(folder + "/model.safetensors.index.json"),
                  done.files > 1);
        const std::int64_t biases =
            config.moe.router_bias ? config.moe.experts * (config.layers - config.moe.dense_layers)
                                   : 0;
        EXPECT_EQ(
            done.bytes.value,
            (done.parameters - biases) * static_cast<std::int64_t>(size_of(stored)) + biases * 4);
        std::filesystem::remove_all(folder);
      }
}

// Writes the folder's single file again, each tensor as `change` wants it; nothing: left out.
using Change = std::function<std::optional<files::TensorInfo>(const files::TensorInfo&)>;
void rewrite(const std::string& folder, const Change& change,
             const files::TensorInfo* more = nullptr) {
  const std::string path = folder + "/model.safetensors";
  std::filesystem::rename(path, path + ".old");
  const auto old = files::Safetensors::open(path + ".old");
  std::vector<files::TensorInfo> infos;
  std::map<std::string, ByteSpan> bytes;
  for (const files::TensorEntry& entry : old->entries())
    if (const auto made = change(entry.info)) {
      infos.push_back(*made);
      bytes[made->name] = entry.bytes;
    }
  if (more != nullptr) infos.push_back(*more);
  files::SafetensorsWriter writer(hasty_disk(), path, infos, {}, files::kLeastAlign);
  for (const files::TensorInfo& info : writer.order()) {
    std::vector<std::byte> own(static_cast<std::size_t>(files::bytes_of(info)));
    const ByteSpan from = bytes[info.name];
    std::copy_n(from.begin(), std::min(from.size(), own.size()), own.begin());
    writer.write(own);
  }
  writer.finish();
  std::filesystem::remove(path + ".old");
}

std::string trouble(const model::ModelConfig& config, const std::string& folder) {
  config::Report report;
  const auto weights = Weights::open(folder, report);
  if (weights) {
    const model::Model model = model_of(config);
    const bool found = HfParams::find(model, *weights, report).has_value();
    EXPECT_EQ(found, report.ok());
  }
  return report.text(folder, false);
}

model::ModelConfig tiny(const std::string& name) {
  for (const model::ModelConfig& model : tiny_models())
    if (model.name == name) return model;
  return {};
}

TEST(HfParams, HubFilesWithoutPrefixAndWithMasksAreRead) {
  const model::ModelConfig gpt2 = tiny("gpt2-tiny");
  const std::string folder = exported(gpt2, {DType::kF32});
  const files::TensorInfo mask{"h.0.attn.bias", files::ElementType::kF32, {1, 1, 16, 16}};
  rewrite(
      folder,
      [](files::TensorInfo info) {
        info.name = info.name.substr(std::string("transformer.").size());
        return std::optional(info);
      },
      &mask);
  expect_drawn(gpt2, folder, DType::kF32);
}

TEST(HfParams, AllMisfitsAreListedAtOnce) {
  const model::ModelConfig llama = tiny("llama");
  const std::string folder = exported(llama, {DType::kF32});
  const files::TensorInfo more{"model.layers.9.mlp.up_proj.weight", files::ElementType::kF32, {2}};
  rewrite(
      folder,
      [](files::TensorInfo info) -> std::optional<files::TensorInfo> {
        if (info.name.find("layers.1.self_attn.k_proj") != std::string::npos) return std::nullopt;
        if (info.name == "model.norm.weight") return std::nullopt;
        if (info.name == "model.layers.0.mlp.up_proj.weight") info.shape = {48, 56};
        if (info.name == "model.layers.2.input_layernorm.weight")
          info.type = files::ElementType::kI32;
        return info;
      },
      &more);
  const std::string text = trouble(llama, folder);
  for (const char* part :
       {"2 tensors of", "are missing", "model.layers.1.self_attn.k_proj.weight [16, 48]",
        "model.norm.weight [48]",
        "model.safetensors: model.layers.0.mlp.up_proj.weight is [48, 56], not [56, 48]",
        "model.safetensors: model.layers.2.input_layernorm.weight is I32",
        "model.safetensors: model.layers.9.mlp.up_proj.weight [2]", "LS0841"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(HfParams, ATiedHeadMayBeStoredTwiceButNotDiffer) {
  const model::ModelConfig tied = tiny("llama-tied");
  for (const bool differs : {false, true}) {
    const std::string folder = exported(tied, {DType::kF32});
    const files::TensorInfo head{"lm_head.weight", files::ElementType::kF32, {61, 48}};
    rewrite(folder, [](const files::TensorInfo& info) { return std::optional(info); }, &head);
    if (!differs) {  // the copy holds zeros until the embedding's bytes are put in its place
      const auto file = files::Safetensors::open(folder + "/model.safetensors");
      const ByteSpan embedding = file->find("model.embed_tokens.weight")->bytes;
      const ByteSpan copy = file->find("lm_head.weight")->bytes;
      std::fstream out(folder + "/model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(file->data_begin() + (copy.data() - file->entries()[0].bytes.data()));
      out.write(reinterpret_cast<const char*>(embedding.data()),
                static_cast<std::streamsize>(embedding.size()));
    }
    const std::string text = trouble(tied, folder);
    EXPECT_EQ(text.find("not the embedding's weight") != std::string::npos, differs) << text;
  }
}

}  // namespace
}  // namespace lockstep::hf
