#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/files/durable.h"
#include "lockstep/files/safetensors.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/catalog.h"
#include "tests/cli/answer.h"
#include "tests/support/model_named.h"

namespace lockstep::cli {
namespace {

class Counting final : public hf::ParamSource {
 public:
  DType type() const override { return DType::kBF16; }
  Result<void> read(const std::string&, const std::vector<std::int64_t>&, std::int64_t first,
                    std::span<std::byte> out) override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::byte>((first + static_cast<std::int64_t>(i)) & 0x3f);
    return {};
  }
};

// A folder of its own for each test, with a Hugging Face directory `tiny` in it.
class ConvertVerb : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "convert-" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    const model::ModelConfig config = model::find("gpt2-tiny")->config;
    Counting params;
    ASSERT_TRUE(hf::write_directory(*model::describe(config),
                                    *hf::config_json(config, DType::kBF16), params,
                                    files::real_disk(), at("tiny"), {})
                    .ok());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string at(const std::string& name) const { return dir_ + "/" + name; }
  static Answer run(std::vector<std::string> words) {
    words.insert(words.begin(), "convert");
    return answer(convert_verb(), words);
  }
  static std::string bytes_in(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string dir_;
};

TEST_F(ConvertVerb, GoesBothWaysAndSaysWhatItDid) {
  const Answer there = run({at("tiny"), at("start")});
  ASSERT_EQ(there.code, ExitCode::kOk) << there.err;
  for (const char* part :
       {"model    tiny: gpt2, 124,672 parameters, head tied", "28 tensors from 1 file",
        "/start/step-00000000: 36 parameter tensors, 244 KiB", "/start/model.toml"})
    EXPECT_NE(there.out.find(part), std::string::npos) << part << "\n" << there.out;
  EXPECT_EQ(model::model_named(at("start/model.toml"))->hidden, 64);

  const Answer back = run({at("start"), at("again"), "--tokenizer", at("tiny")});
  EXPECT_EQ(back.code, ExitCode::kEnvironment) << back.out;
  EXPECT_FALSE(std::filesystem::exists(at("again")));
  std::ofstream(at("tiny/tokenizer.json")) << "words";
  const Answer json = run({at("start"), at("again"), "--tokenizer", at("tiny"), "--json"});
  ASSERT_EQ(json.code, ExitCode::kOk) << json.err;
  const Json told = *Json::parse(json.out);
  EXPECT_EQ(told.find("schema")->as_text(), "lockstep.convert/1");
  EXPECT_EQ(told.find("dtype")->as_text(), "bf16");
  EXPECT_FALSE(told.find("rounded")->as_bool());
  for (const char* file : {"model.safetensors", "config.json", "tokenizer.json"})
    EXPECT_EQ(bytes_in(at("again/") + file) == bytes_in(at("tiny/") + file), true) << file;

  EXPECT_EQ(run({at("start/step-00000000"), at("wide"), "--dtype", "f32", "--shard", "100kB"}).code,
            ExitCode::kOk);
  EXPECT_TRUE(std::filesystem::exists(at("wide/model.safetensors.index.json")));
}

TEST_F(ConvertVerb, NothingIsOverwrittenOrGuessed) {
  const auto refusal = [&](const std::vector<std::string>& words, ExitCode code) {
    const Answer ran = run(words);
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    return ran.err;
  };
  EXPECT_NE(refusal({at("tiny"), at("tiny")}, ExitCode::kUsage).find("exists already"),
            std::string::npos);
  refusal({at("nowhere"), at("out")}, ExitCode::kEnvironment);
  std::filesystem::create_directory(at("empty"));
  EXPECT_NE(refusal({at("empty"), at("out")}, ExitCode::kEnvironment).find("LS0825"),
            std::string::npos);
  for (const auto& [option, value] :
       {std::pair{"--dtype", "f32"}, {"--tokenizer", "."}, {"--shard", "5GB"}})
    EXPECT_NE(refusal({at("tiny"), at("out"), option, value}, ExitCode::kUsage).find(option),
              std::string::npos);
  std::ofstream(at("tiny/MANIFEST.json")) << "{}";
  refusal({at("tiny"), at("out")}, ExitCode::kUsage);
  std::filesystem::remove(at("tiny/MANIFEST.json"));
  std::filesystem::resize_file(at("tiny/model.safetensors"), 1000);
  EXPECT_NE(refusal({at("tiny"), at("out")}, ExitCode::kEnvironment).find("model.safetensors"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(at("out")));
}

// Puts two bytes at an element of a tensor of a file of bf16.
void poison(const std::string& path, const std::string& tensor, std::int64_t element,
            std::uint16_t bits) {
  const files::TensorEntry entry = *files::Safetensors::open(path).value().find(tensor);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(entry.begin + 2 * element);
  file.write(reinterpret_cast<const char*>(&bits), 2);
}

TEST_F(ConvertVerb, WeightsThatAreNotFiniteAreRefusedWithTensorAndElement) {
  const std::string file = at("tiny/model.safetensors");
  for (const unsigned bits : {0x7fc0u, 0xff81u, 0x7f80u, 0xff80u}) {
    poison(file, "transformer.wpe.weight", 77, static_cast<std::uint16_t>(bits));
    const Answer refused = run({at("tiny"), at("out")});
    EXPECT_EQ(refused.code, ExitCode::kEnvironment) << refused.out;
    EXPECT_NE(refused.err.find("`transformer.wpe.weight`: element 77 is not finite"),
              std::string::npos)
        << refused.err;
    EXPECT_FALSE(std::filesystem::exists(at("out")));
  }
  poison(file, "transformer.wpe.weight", 77, 0x7f7f);  // the largest
  // Stored transposed, and three parameters at once.
  for (const std::int64_t element : {0, 131, 2'901}) {
    poison(file, "transformer.h.1.attn.c_attn.weight", element, 0x7fc0);
    const Answer refused = run({at("tiny"), at("out")});
    EXPECT_NE(refused.err.find(join_parts("`transformer.h.1.attn.c_attn.weight`: element ", element,
                                          " is not finite")),
              std::string::npos)
        << refused.err;
    poison(file, "transformer.h.1.attn.c_attn.weight", element, 0);
  }
  ASSERT_EQ(run({at("tiny"), at("out")}).code, ExitCode::kOk);

  // The other way: of a source that says so, and of a number that bf16 does not have.
  class Sick final : public hf::ParamSource {
   public:
    explicit Sick(float value) : value_(value) {}
    DType type() const override { return DType::kF32; }
    Result<void> read(const std::string& name, const std::vector<std::int64_t>&, std::int64_t first,
                      std::span<std::byte> out) override {
      std::ranges::fill(out, std::byte{0});
      if (name == "blocks.1.attn.o.weight" && first == 0)
        std::memcpy(out.data() + 4 * 130, &value_, 4);  // row 2, column 2
      return {};
    }

   private:
    float value_;
  };
  const model::ModelConfig config = model::find("gpt2-tiny")->config;
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::max()}) {
    Sick params(value);
    const auto written =
        hf::write_directory(*model::describe(config), *hf::config_json(config, DType::kBF16),
                            params, files::real_disk(), at("sick"), {});
    ASSERT_FALSE(written.ok());
    EXPECT_NE(written.error().message.find("h.1.attn.c_proj.weight`: element 130 is not finite"),
              std::string::npos)
        << written.error().message;
    EXPECT_FALSE(std::filesystem::exists(at("sick")));
  }
}

}  // namespace
}  // namespace lockstep::cli
