#include "lockstep/hf/import.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/hf/export.h"
#include "tests/hf/tiny.h"
#include "tests/support/model_named.h"

namespace lockstep::hf {
namespace {

std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A directory of drawn parameters, called like its model.
std::string directory_of(const model::ModelConfig& config, const ExportSettings& settings) {
  const std::string parent = fresh_folder("drawn");
  std::filesystem::create_directory(parent);
  std::string folder = parent + "/" + config.name;
  DrawnParams params;
  EXPECT_TRUE(write_directory(*model::describe(config), *config_json(config, settings.stored),
                              params, hasty_disk(), folder, settings)
                  .ok());
  return folder;
}

Imported import(const std::string& folder, const std::string& out) {
  config::Report report;
  const auto directory = open_directory(folder, report);
  EXPECT_TRUE(directory) << report.text(folder, false);
  return write_checkpoint(*directory, hasty_disk(), out, "test").value();
}

Result<CheckpointSource> source_of(const std::string& path) {
  Result<checkpoint::Checkpoint> opened = checkpoint::Checkpoint::open(path);
  if (!opened.ok()) return opened.error();
  return CheckpointSource::open(*std::move(opened));
}

TEST(Import, DirectoriesComeBackBitForBit) {
  for (const model::ModelConfig& config : tiny_models())
    for (const DType stored : {DType::kF32, DType::kBF16}) {
      const std::string folder = directory_of(config, {stored});
      const std::string out = fresh_folder("checkpoint");
      const Imported done = import(folder, out);
      EXPECT_EQ(done.checkpoint, out + "/step-00000000");

      auto source = source_of(done.checkpoint);
      ASSERT_TRUE(source.ok()) << source.error().message;
      EXPECT_EQ(source->trained_type(), stored);
      const std::string again = fresh_folder("again");
      model::ModelConfig model = source->model();
      model.name = config.name;
      EXPECT_EQ(model, config);
      ASSERT_TRUE(write_directory(*model::describe(model), *config_json(model, stored), *source,
                                  hasty_disk(), again, {stored})
                      .ok());
      for (const char* file : {"model.safetensors", "config.json"})
        EXPECT_EQ(bytes_in(again + "/" + file) == bytes_in(folder + "/" + file), true)
            << config.name << " " << file;
      const auto named = model::model_named(out + "/model.toml");
      ASSERT_TRUE(named.ok());
      EXPECT_EQ(*named, config);
    }
}

TEST(Import, AMixedDirectoryKeepsTheTypesOfItsTensors) {
  const model::ModelConfig config = tiny_models()[2];
  const std::string wide = directory_of(config, {DType::kF32});
  const std::string narrow = directory_of(config, {DType::kBF16});
  // Norms of the one and matrices of the other, in two files.
  const std::string folder = fresh_folder("mixed");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(wide + "/config.json", folder + "/config.json");
  Json::Object map;
  for (const auto& [from, file] : {std::pair(wide, "w.safetensors"), {narrow, "n.safetensors"}}) {
    const auto old = files::Safetensors::open(from + "/model.safetensors");
    std::vector<files::TensorInfo> infos;
    for (const auto& entry : old->entries())
      if ((entry.info.shape.size() == 1) == (from == wide)) {
        infos.push_back(entry.info);
        map.push_back({entry.info.name, file});
      }
    files::SafetensorsWriter writer(hasty_disk(), folder + "/" + file, infos, {},
                                    files::kLeastAlign);
    for (const auto& info : writer.order()) writer.write(old->find(info.name)->bytes);
    writer.finish();
  }
  std::ofstream(folder + "/model.safetensors.index.json")
      << Json::object({{"weight_map", Json::object(map)}}).dump();
  auto source = source_of(import(folder, fresh_folder("checkpoint")).checkpoint);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->type(), DType::kF32);
  for (const auto& tensor : source->manifest().tensors)
    EXPECT_EQ(tensor.type,
              tensor.shape.size() == 1 ? files::ElementType::kF32 : files::ElementType::kBF16);
}

TEST(Import, EverythingWrongIsToldBeforeAnythingIsWritten) {
  const std::string folder = directory_of(tiny_models()[0], {DType::kF32});
  config::Report report;
  EXPECT_FALSE(open_directory(fresh_folder("absent"), report));
  EXPECT_EQ(report.first_error().code, Code::kFileUnreadable);
  Json json = *Json::parse(bytes_in(folder + "/config.json"));
  json.set("activation_function", "relu").set("n_layer", 3);
  std::ofstream(folder + "/config.json") << json.dump();
  std::filesystem::remove(folder + "/model.safetensors");
  config::Report both;
  EXPECT_FALSE(open_directory(folder, both));
  EXPECT_EQ(both.num_errors(), 2) << both.text("", false);
  std::ofstream(folder + "/config.json") << "{";
  config::Report broken;
  EXPECT_FALSE(open_directory(folder, broken));
  EXPECT_EQ(broken.first_error().code, Code::kBadHfConfig);
}

TEST(Import, AnExistingFolderIsLeftAlone) {
  const std::string folder = directory_of(tiny_models()[0], {DType::kF32});
  const std::string out = fresh_folder("taken");
  std::filesystem::create_directory(out);
  EXPECT_THROW(import(folder, out), IoError);
  EXPECT_TRUE(std::filesystem::is_empty(out));
}

TEST(Export, ATokenizerIsCopied) {
  const std::string from = fresh_folder("tokenizer");
  std::filesystem::create_directory(from);
  EXPECT_FALSE(tokenizer_files(from).ok());
  std::ofstream(from + "/tokenizer.json") << "words";
  std::ofstream(from + "/generation_config.json") << "{}";
  std::ofstream(from + "/config.json") << R"({"bos_token_id": 1, "eos_token_id": [2, 3]})";
  const auto files = tokenizer_files(from);
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->special.dump(), R"({"bos_token_id":1,"eos_token_id":[2,3]})");
  const model::ModelConfig config = tiny_models()[0];
  const std::string out = fresh_folder("parent") + "/of/it";
  DrawnParams params;
  ASSERT_TRUE(write_directory(*model::describe(config), Json::object(), params, hasty_disk(), out,
                              {.beside = files->paths})
                  .ok());
  EXPECT_EQ(bytes_in(out + "/tokenizer.json"), "words");
  EXPECT_EQ(bytes_in(out + "/generation_config.json"), "{}");
}

// Every byte of the weights counts: one that was changed is found, and nothing is left of the
// export. A checkpoint of a run says how its weights began; one of weights alone does not.
TEST(Export, WritesTheInitialDeviationOfTheRun) {
  const model::ModelConfig config = tiny_models()[0];
  const Imported done = import(directory_of(config, {DType::kF32}), fresh_folder("checkpoint"));
  EXPECT_EQ(source_of(done.checkpoint)->model().init_std, 0.02);
  const auto says = [&](const std::string& began) {
    auto manifest = checkpoint::Checkpoint::open(done.checkpoint)->manifest();
    manifest.config = {{"seed", "1"}, {"init_std", began}};
    std::ofstream(done.checkpoint + "/MANIFEST.json") << checkpoint::to_text(manifest);
    return source_of(done.checkpoint);
  };
  for (const char* began : {"0.01", "0.0060000000000000001"}) {
    const auto source = says(began);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto json = config_json(source->model(), DType::kF32);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("initializer_range")->as_real(), std::stod(began));
  }
  for (const char* began : {"", "0", "-1", "inf", "nan", "0.01x"}) {
    const auto refused = says(began);
    ASSERT_FALSE(refused.ok()) << began;
    EXPECT_EQ(refused.error().code, Code::kOtherCheckpoint);
  }
}

TEST(Export, ADamagedCheckpointLeavesNothing) {
  const model::ModelConfig config = tiny_models()[0];
  const Imported done = import(directory_of(config, {DType::kF32}), fresh_folder("damaged"));
  std::fstream file(done.checkpoint + "/rank-00000.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  const int byte = file.peek();
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  auto source = source_of(done.checkpoint);
  ASSERT_TRUE(source.ok());
  const std::string out = fresh_folder("none");
  const auto written = write_directory(*model::describe(config), Json::object(), *source,
                                       hasty_disk(), out, {DType::kF32});
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kCorruptCheckpoint);
  EXPECT_NE(written.error().message.find("rank-00000.safetensors"), std::string::npos);
  EXPECT_NE(written.error().message.find("tensor `"), std::string::npos);
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(out).parent_path()))
    EXPECT_FALSE(entry.path().string().starts_with(out)) << entry.path();
}

// The most memory that this process has had since the last reset.
std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return -1;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

class Zeros final : public ParamSource {
 public:
  DType type() const override { return DType::kF32; }
  Result<void> read(const std::string&, const std::vector<std::int64_t>&, std::int64_t,
                    std::span<std::byte> out) override {
    std::memset(out.data(), 0, out.size());
    return {};
  }
};

// Its tensors are transposed on the way, which needs more memory than any other.
TEST(ImportLong, FilesLargerThanItsMemoryAreStreamed) {
  model::ModelConfig config = tiny_models()[0];
  config.layers = 5;
  config.hidden = 512;
  config.head_dim = 128;
  config.ffn = 8192;
  const model::Model model = *model::describe(config);
  const std::int64_t most = (std::int64_t{4} * 512 * 8192) + (std::int64_t{64} << 20);
  const std::string folder = fresh_folder("large");
  Zeros zeros;
  const Exported made =
      *write_directory(model, *config_json(config, DType::kF32), zeros, hasty_disk(), folder,
                       {.stored = DType::kF32, .shard = {60'000'000}});
  ASSERT_GT(made.bytes.value, 2 * most);

  reset_peak();
  std::int64_t before = peak_bytes();
  const std::string start = import(folder, fresh_folder("checkpoint")).checkpoint;
  EXPECT_LE(peak_bytes() - before, most);

  auto source = source_of(start);
  ASSERT_TRUE(source.ok());
  reset_peak();
  before = peak_bytes();
  EXPECT_TRUE(write_directory(model, Json::object(), *source, hasty_disk(), fresh_folder("again"),
                              {.stored = DType::kBF16})
                  .ok());
  EXPECT_LE(peak_bytes() - before, most);
}

}  // namespace
}  // namespace lockstep::hf
