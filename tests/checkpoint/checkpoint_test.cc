#include "lockstep/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/checkpoint/manifest.h"
#include "tests/checkpoint/recording_disk.h"
#include "tests/checkpoint/sample.h"

namespace lockstep::checkpoint {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    make_folders(disk_, folder_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  RecordingDisk disk_;  // quicker than the machine's: it does not sync
  const std::string root_ = scratch("checkpoints");
  const std::string folder_ = root_ + "/a/b";
};

std::vector<float> read_all(Checkpoint& checkpoint, const Slice& slice) {
  std::vector<float> values(static_cast<std::size_t>(slice.size()));
  const auto read = checkpoint.read(slice, DType::kF32, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read.ok()) << read.error().message;
  return values;
}

TEST_F(CheckpointTest, AnySlicesAreReadFromAnyOthers) {
  Dice dice(2);
  for (int trial = 0; trial < 30; ++trial) {
    const std::string path =
        save_sample(disk_, folder_, trial, dice, static_cast<int>(roll(dice, 1, 4)));
    auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->manifest().step, trial);
    for (const SampleTensor& tensor : sample_tensors())
      for (const Role role : kAllRoles)
        for (const Slice& wanted : random_cut(tensor, role, dice))
          EXPECT_EQ(read_all(*checkpoint, wanted), values_of(wanted, trial));
    std::int64_t looked_at = 0;
    const auto whole = checkpoint->verify([&](std::int64_t bytes) { looked_at += bytes; });
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    EXPECT_EQ(looked_at, 3 * 4 * (66 + 7 + 60 + 1));
  }
}

TEST_F(CheckpointTest, RefusesWhatItDoesNotHave) {
  Dice dice(3);
  auto checkpoint = Checkpoint::open(save_sample(disk_, folder_, 1, dice)).value();
  std::vector<std::byte> target(7 * 8);
  const auto message = [&](const Slice& slice, DType dtype, std::size_t bytes) {
    const auto read = checkpoint.read(slice, dtype, std::span(target).first(bytes));
    if (read.ok()) return std::string();
    EXPECT_EQ(read.error().code, Code::kOtherCheckpoint);
    return read.error().message.substr(checkpoint.path().size() + 2);
  };
  const Slice norm = {"blocks.0.norm", Role::kWeight, {7}, whole({7}), 0, 7};
  EXPECT_EQ(message(norm, DType::kF32, 28), "");
  EXPECT_EQ(message(norm, DType::kF64, 56), "");
  EXPECT_EQ(
      message(norm, DType::kBF16, 14),
      " has weight of tensor `blocks.0.norm` as F32, which cannot become bf16 without rounding");
  EXPECT_EQ(message({"norm", Role::kWeight, {7}, whole({7}), 0, 7}, DType::kF32, 28),
            " has no weight of tensor `norm`");
  EXPECT_EQ(message({"blocks.0.norm", Role::kWeight, {8}, whole({8}), 0, 7}, DType::kF32, 28),
            " has weight of tensor `blocks.0.norm` of shape [7], here it has [8]");
}

TEST_F(CheckpointTest, PublishesReplacesAndRetains) {
  Dice dice(4);
  for (const int step : {10, 20, 30, 20}) {
    save_sample(disk_, folder_, step, dice);
    retain(disk_, folder_, 2);
  }
  EXPECT_EQ(disk_.list(folder_),
            (std::vector<std::string>{"latest", "step-00000020", "step-00000030"}));
  EXPECT_EQ(newest(disk_, folder_)->checkpoint.manifest().step, 30);
  EXPECT_EQ(newest(disk_, folder_, 30)->checkpoint.manifest().step, 20);
  EXPECT_EQ(newest(disk_, folder_, 20).error().code, Code::kNoCheckpoint);
  retain(disk_, folder_, 0);
  EXPECT_EQ(candidates(disk_, folder_).size(), 2u);

  begin_save(disk_, folder_, 40, "interrupted");
  disk_.rename(folder_ + "/step-00000020", folder_ + "/step-00000020.replaced-x");
  EXPECT_EQ(candidates(disk_, folder_),
            (std::vector<std::string>{folder_ + "/step-00000030",
                                      folder_ + "/step-00000020.replaced-x"}));
  EXPECT_EQ(newest(disk_, folder_, 30)->checkpoint.manifest().step, 20);
  clean(disk_, folder_);
  EXPECT_EQ(disk_.list(folder_).size(), 3u);
}

TEST_F(CheckpointTest, TheNewestThatIsWholeIsChosen) {
  Dice dice(5);
  EXPECT_EQ(newest(disk_, folder_).error().code, Code::kNoCheckpoint);
  EXPECT_EQ(newest(disk_, folder_ + "/absent").error().code, Code::kNoCheckpoint);
  for (const int step : {1, 2, 3, 4}) save_sample(disk_, folder_, step, dice);
  std::filesystem::remove(folder_ + "/step-00000004/MANIFEST.json");
  std::filesystem::resize_file(folder_ + "/step-00000003/rank-00000.safetensors", 5000);
  const auto choice = newest(disk_, folder_);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->checkpoint.manifest().step, 2);
  ASSERT_EQ(choice->skipped.size(), 2u);
  EXPECT_EQ(choice->skipped[0].code, Code::kNoCheckpoint);
  EXPECT_EQ(choice->skipped[1].code, Code::kCorruptCheckpoint);
  EXPECT_TRUE(is_checkpoint(folder_ + "/step-00000004/"));
  EXPECT_FALSE(is_checkpoint(folder_));
}

// What a run did not make stays, whatever it is called: a link, a person's notes, a foreign folder.
TEST_F(CheckpointTest, NothingIsRemovedThatThisProgramDidNotMake) {
  namespace fs = std::filesystem;
  Dice dice(8);
  const std::string other = root_ + "/other", victim = root_ + "/victim";
  fs::create_directories(other);
  fs::create_directories(victim + "/inner");
  std::ofstream(victim + "/inner/thesis") << "years of work";
  const std::string original = save_sample(disk_, other, 1, dice);
  fs::create_directory_symlink(original, folder_ + "/step-00000001");
  for (const int step : {2, 3, 4, 5}) save_sample(disk_, folder_, step, dice);
  std::ofstream(folder_ + "/step-00000002/notes.txt") << "the good one";
  fs::create_directory_symlink(victim, folder_ + "/step-00000009.tmp-x");
  fs::create_directory_symlink(victim, folder_ + "/step-00000003.tmp-removed");
  fs::create_directories(folder_ + "/step-00000007.tmp-mine.d");
  fs::create_directories(folder_ + "/my.tmp-0123");
  clean(disk_, folder_);
  retain(disk_, folder_, 1);
  EXPECT_TRUE(fs::exists(victim + "/inner/thesis"));
  EXPECT_TRUE(Checkpoint::open(original)->check_files().ok());
  EXPECT_TRUE(fs::exists(folder_ + "/step-00000002/notes.txt"));
  EXPECT_TRUE(Checkpoint::open(folder_ + "/step-00000002")->check_files().ok());
  for (const char* name : {"/step-00000001", "/step-00000009.tmp-x", "/step-00000003.tmp-removed",
                           "/step-00000007.tmp-mine.d", "/my.tmp-0123"})
    EXPECT_TRUE(fs::exists(folder_ + name)) << name;
  EXPECT_FALSE(fs::exists(folder_ + "/step-00000004")) << "but old ones of its own go";
  EXPECT_TRUE(fs::exists(folder_ + "/step-00000005"));
}

TEST_F(CheckpointTest, ADamagedOneIsSetAsideUnderANameOfItsOwn) {
  Dice dice(9);
  for (int time = 0; time < 2; ++time) {
    const std::string path = save_sample(disk_, folder_, 4, dice);
    EXPECT_EQ(set_aside(disk_, path), path + (time == 0 ? ".damaged" : ".damaged-2"));
  }
  EXPECT_TRUE(candidates(disk_, folder_).empty());
  clean(disk_, folder_);
  retain(disk_, folder_, 1);
  EXPECT_EQ(disk_.list(folder_ + "/step-00000004.damaged").size(),
            disk_.list(folder_ + "/step-00000004.damaged-2").size());
}

TEST_F(CheckpointTest, AFolderWithAnotherNameIsRefused) {
  Dice dice(6);
  const std::string path = save_sample(disk_, folder_, 7, dice);
  disk_.rename(path, folder_ + "/step-00000070");
  EXPECT_NE(Checkpoint::open(folder_ + "/step-00000070").error().message.find("is of step 7"),
            std::string::npos);
  disk_.rename(folder_ + "/step-00000070", folder_ + "/mine");
  EXPECT_TRUE(Checkpoint::open(folder_ + "/mine").ok());
}

Manifest sample_manifest(std::int64_t step) {
  Dice dice(7);
  RecordingDisk disk;
  const std::string folder = scratch("manifest");
  std::filesystem::remove_all(folder);
  files::real_disk().make_folder(folder);
  Manifest manifest = write_sample(disk, folder, step, 2, 0, dice);
  std::filesystem::remove_all(folder);
  return manifest;
}

TEST(Manifest, ReadsAsItWasWritten) {
  Manifest manifest = sample_manifest(3);
  for (const bool checked : {false, true}) {
    if (checked) manifest.checked = 3;
    const std::string text = to_text(manifest);
    EXPECT_EQ(text.find("\"checked\":3") != std::string::npos, checked) << text;
    const auto again = parse_manifest(text, "m");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, manifest);
    EXPECT_EQ(to_text(*again), text);
  }
  EXPECT_NE(manifest.find("cube", Role::kFirstMoment), nullptr);
  EXPECT_EQ(manifest.find("cubes", Role::kFirstMoment), nullptr);
  EXPECT_NE(digest_of(manifest.model), digest_of(manifest.config));
}

// With digests that fit: what no run writes, whoever signed it.
TEST(Manifest, ASignedOneWithoutSenseIsRefused) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  using Change = void (*)(Manifest&);
  const std::pair<Change, const char*> changes[] = {
      {[](Manifest& m) { m.samples = kHuge; }, "`samples` is 9223372036854775807, above 48"},
      {[](Manifest& m) { m.samples = 49; }, "`samples` is 49, above 48"},
      {[](Manifest& m) { m.tokens = kHuge; }, "`tokens` is 9223372036854775807, above 3072"},
      {[](Manifest& m) { m.tokens = -1; }, "`tokens` is no whole number from 0 on"},
      {[](Manifest& m) { m.updates = 4; }, "`updates` is 4, above 3"},
      {[](Manifest& m) { m.checked = 4; }, "`checked` is 4, above 3"},
      {[](Manifest& m) { m.checked = -1; }, "`checked` is no whole number from 0 on"},
      {[](Manifest& m) { m.step = 0; }, "`updates` is 3, above 0"},
      {[](Manifest& m) { m.step = -3; }, "`step` is no whole number from 0 on"},
      {[](Manifest& m) { m.step = kHuge; },
       "`step` is 9223372036854775807, above 9007199254740992"},
      {[](Manifest& m) { m.config[2].second = "much"; }, "`samples` is 48, above 0"},
      {[](Manifest& m) { m.config[3].second = "-64"; }, "`tokens` is 3000, above 0"},
      {[](Manifest& m) { m.config.clear(), m.tokens = kHuge; },
       "`tokens` is 9223372036854775807, above 9007199254740992"},
      {[](Manifest& m) { m.files[0].bytes = m.files[1].bytes = kHuge; },
       "`files[0].bytes` is 9223372036854775807, above 9007199254740992"},
      {[](Manifest& m) { m.tensors[0].slices[0].file = 99; }, "is in no list"},
      {[](Manifest& m) { m.tensors[0].shape = {kHuge, kHuge}; }, "does not fit into 63 bits"},
  };
  const Manifest good = sample_manifest(3);
  ASSERT_TRUE(parse_manifest(to_text(good), "m").ok());
  for (const auto& [change, told] : changes) {
    Manifest forged = good;
    change(forged);
    const auto read = parse_manifest(to_text(forged), "m");
    ASSERT_FALSE(read.ok()) << "accepted, but: " << told;
    EXPECT_EQ(read.error().code, Code::kBadManifest);
    EXPECT_NE(read.error().message.find(told), std::string::npos) << read.error().message;
  }
}

TEST(Coverage, FindsWhatIsInNoSliceAndInTwo) {
  Manifest manifest;
  manifest.files = {{"f", 0, {}}};
  const auto record = [](const Box& box, std::int64_t begin, std::int64_t end) {
    return StoredSlice{0, box, begin, end, {}};
  };
  const Box left = {{0, 0}, {4, 2}}, right = {{0, 2}, {4, 4}}, all = {{0, 0}, {4, 6}};
  const auto told = [&](std::vector<StoredSlice> slices) {
    manifest.tensors = {{"w", Role::kWeight, files::ElementType::kF32, {4, 6}, std::move(slices)}};
    const auto covered = check_coverage(manifest, "m");
    return covered.ok() ? "" : covered.error().message;
  };
  EXPECT_EQ(check_coverage(manifest, "m").error().message, "`m`: `tensors` is empty");
  EXPECT_EQ(told({record(all, 0, 24)}), "");
  EXPECT_EQ(told({record(right, 3, 16), record(left, 0, 8), record(right, 0, 3)}), "");
  EXPECT_EQ(told({record(right, 4, 16), record(left, 0, 8), record(right, 0, 3)}),
            "`m`: weight of tensor `w`: elements 3 to 4 of box [0, 2] to [4, 6] are in no slice");
  EXPECT_EQ(told({record(right, 2, 16), record(left, 0, 8), record(right, 0, 3)}),
            "`m`: weight of tensor `w`: elements 2 to 3 of box [0, 2] to [4, 6] are in two slices");
  EXPECT_EQ(told({record(left, 0, 8), record(right, 0, 15)}),
            "`m`: weight of tensor `w`: elements 15 to 16 of box [0, 2] to [4, 6] are in no slice");
  EXPECT_EQ(told({record(left, 0, 8)}),
            "`m`: weight of tensor `w`: boxes hold 8 of its 24 elements");
  EXPECT_EQ(told({}), "`m`: weight of tensor `w`: boxes hold 0 of its 24 elements");
  EXPECT_EQ(told({record(left, 0, 8), record(all, 0, 24)}),
            "`m`: weight of tensor `w`: boxes [0, 0] to [4, 2] and [0, 0] to [4, 6] overlap");
}

}  // namespace
}  // namespace lockstep::checkpoint
