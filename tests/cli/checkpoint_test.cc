#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "lockstep/checkpoint/slice.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/user_model.h"
#include "tests/checkpoint/sample.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class CheckpointVerb : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    checkpoint::Dice dice(1);
    for (const int step : {10, 20, 30})
      checkpoint::save_sample(files::real_disk(), folder_, step, dice, 2);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Answer run(std::vector<std::string> words) const {
    words.insert(words.begin(), "checkpoint");
    return answer(checkpoint_verb(), words);
  }
  std::string path(int step) const { return folder_ + "/" + checkpoint::folder_name(step); }

  const std::string folder_ = checkpoint::scratch("cli-checkpoints");
};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(CheckpointVerb, ListsTheNewestFirstAndWhatIsNotWhole) {
  fs::remove(path(20) + "/rank-00001.safetensors");
  const Answer listed = run({"ls", folder_});
  EXPECT_EQ(listed.code, ExitCode::kOk);
  EXPECT_LT(listed.out.find("step-00000030    30  30,000"), listed.out.find("step-00000020     -"));
  EXPECT_TRUE(says(listed.out, "not whole")) << listed.out;
  EXPECT_TRUE(says(listed.err, "rank-00001.safetensors`, which holds tensor")) << listed.err;
  const Answer json = run({"ls", folder_, "--json"});
  const Json read = Json::parse(json.out).value();
  EXPECT_EQ(read.find("checkpoints")->items().size(), 3u);
  EXPECT_FALSE(read.find("checkpoints")->items()[1].find("whole")->as_bool());

  const Answer none = run({"ls", folder_ + "/none"});
  EXPECT_EQ(none.code, ExitCode::kEnvironment);
  EXPECT_TRUE(says(none.err, "LS0825")) << none.err;
}

TEST_F(CheckpointVerb, ShowsWhatIsInOne) {
  const Answer shown = run({"show", path(20), "--tensors"});
  EXPECT_EQ(shown.code, ExitCode::kOk);
  for (const char* part : {"tokens    20,000", "weight               4       134", "  layers",
                           "  lr", "cube           second_moment  F32   [3, 4, 5]"})
    EXPECT_TRUE(says(shown.out, part)) << part << "\n" << shown.out;
  const Json json = Json::parse(run({"show", path(20), "--json"}).out).value();
  EXPECT_EQ(json.find("tensors")->items().size(), 12u);
  EXPECT_EQ(json.find("step")->as_int(), 20);
}

// As `ls`, `verify` and `convert` do: of a folder, the newest; a newer one that is damaged is not
// passed over in silence.
TEST_F(CheckpointVerb, ShowsTheNewestOfAFolder) {
  const Answer newest = run({"show", folder_});
  EXPECT_EQ(newest.code, ExitCode::kOk) << newest.err;
  EXPECT_TRUE(newest.out.starts_with(path(30) + ": ")) << newest.out;
  fs::remove(path(30) + "/MANIFEST.json");
  const Answer damaged = run({"show", folder_});
  EXPECT_EQ(damaged.code, ExitCode::kEnvironment) << damaged.out;
  EXPECT_TRUE(says(damaged.err, path(20))) << damaged.err;
  EXPECT_TRUE(says(run({"show", folder_ + "/none"}).err, "LS0825"));
}

// A file where a folder is expected: what it is, and what to name instead.
TEST_F(CheckpointVerb, SaysThatAFileIsNoFolder) {
  const std::string file = path(10) + "/rank-00000.safetensors";
  for (const char* verb : {"ls", "show", "verify"}) {
    const Answer ran = run({verb, file});
    EXPECT_EQ(ran.code, ExitCode::kEnvironment) << ran.err;
    EXPECT_TRUE(says(ran.err, "LS0825]: `" + file + "` is a file")) << ran.err;
    EXPECT_TRUE(says(ran.err, "`" + path(10) + "`")) << ran.err;
  }
}

// A training of a model that there is, with zeros; `change` may spoil the manifest before it is
// signed.
void save_model(const std::string& folder, std::int64_t step,
                const std::function<void(checkpoint::Manifest&)>& change = {}) {
  const model::ModelConfig config = model::find("llama-tiny")->config;
  const model::Model model = model::describe(config).value();
  std::vector<checkpoint::TypedSlice> slices;
  for (const checkpoint::Role role : checkpoint::kAllRoles)
    for (checkpoint::Slice& slice : checkpoint::model_slices(model, role))
      slices.push_back({std::move(slice)});
  const std::string fresh = checkpoint::begin_save(files::real_disk(), folder, step, "n");
  checkpoint::FileWriter file(files::real_disk(), fresh, checkpoint::file_name(0), slices);
  for (const checkpoint::TypedSlice& slice : file.order())
    file.write(std::vector<std::byte>(static_cast<std::size_t>(slice.bytes())));
  checkpoint::Manifest manifest = file.finish();
  manifest.step = manifest.updates = step;
  manifest.model = model::model_facts(config);
  manifest.config = {{"seq", "8"}, {"global_batch", "4"}};
  if (change) change(manifest);
  checkpoint::publish(files::real_disk(), folder, fresh, manifest);
}

TEST_F(CheckpointVerb, VerifiesOneAndAll) {
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  for (const int step : {10, 20}) save_model(folder_, step);
  EXPECT_EQ(run({"verify", path(10)}).code, ExitCode::kOk);
  EXPECT_EQ(run({"verify", folder_}).code, ExitCode::kOk);
  fs::resize_file(path(10) + "/rank-00000.safetensors", 4100);
  const Answer hurt = run({"verify", folder_});
  EXPECT_EQ(hurt.code, ExitCode::kCheckFailed);
  EXPECT_TRUE(says(hurt.out, "step-00000010: NOT WHOLE")) << hurt.out;
  EXPECT_TRUE(says(hurt.err, "has 4100 bytes, but had")) << hurt.err;
  const Json json = Json::parse(run({"verify", folder_, "--json"}).out).value();
  EXPECT_FALSE(json.find("whole")->as_bool());
}

TEST_F(CheckpointVerb, VerifiesTheSenseOfWhatIsSigned) {
  using checkpoint::Manifest;
  const std::pair<std::function<void(Manifest&)>, const char*> changes[] = {
      {[](Manifest& m) { m.tensors.clear(); }, "`tensors` is empty"},
      {[](Manifest& m) { m.tensors.pop_back(); }, "of tensor `"},
      {[](Manifest& m) { m.samples = std::numeric_limits<std::int64_t>::max(); }, "above 160"},
      {[](Manifest& m) { m.tokens = std::numeric_limits<std::int64_t>::max(); }, "above 0"},
      {[](Manifest& m) { m.model[0].second = "99"; }, "names no model"}};
  for (const auto& [change, told] : changes) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    save_model(folder_, 40, change);
    const Answer refused = run({"verify", path(40)});
    EXPECT_EQ(refused.code, ExitCode::kCheckFailed);
    EXPECT_TRUE(says(refused.err, "LS0822") && says(refused.err, told)) << refused.err;
  }
}

TEST_F(CheckpointVerb, TellsHowTwoDiffer) {
  const Answer same = run({"diff", path(10), path(10)});
  EXPECT_EQ(same.code, ExitCode::kOk);
  EXPECT_EQ(same.out, "12 tensors of 12 with 402 elements are equal bit for bit\n");
  const Answer other = run({"diff", path(10), path(20)});
  EXPECT_EQ(other.code, ExitCode::kCheckFailed);
  EXPECT_TRUE(says(other.out, "step     10     20")) << other.out;
  EXPECT_TRUE(says(other.out, "blocks.0.norm  weight                7          7")) << other.out;
  const Json json = Json::parse(run({"diff", path(10), path(20), "--json"}).out).value();
  EXPECT_FALSE(json.find("same")->as_bool());
}

}  // namespace
}  // namespace lockstep::cli
