// Power may go at any moment: whatever of the unsynced calls has reached the disk, a checkpoint
// that was published before is found, and never a part of one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "lockstep/checkpoint/checkpoint.h"
#include "tests/checkpoint/recording_disk.h"
#include "tests/checkpoint/sample.h"

namespace lockstep::checkpoint {
namespace {

class Crash : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(after_);
  }

  // Loads what would be gone on from; the step, or -1.
  std::int64_t loaded_step() {
    auto choice = newest(files::real_disk(), after_);
    if (!choice.ok()) return -1;
    Checkpoint& found = choice->checkpoint;
    const auto whole = found.verify();
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    const std::int64_t step = found.manifest().step;
    for (const SampleTensor& tensor : sample_tensors()) {
      const Slice all = {tensor.name,
                         Role::kWeight,
                         tensor.shape,
                         checkpoint::whole(tensor.shape),
                         0,
                         checkpoint::whole(tensor.shape).volume()};
      std::vector<float> values(static_cast<std::size_t>(all.size()));
      EXPECT_TRUE(found.read(all, DType::kF32, std::as_writable_bytes(std::span(values))).ok());
      EXPECT_EQ(values, values_of(all, step));
    }
    return step;
  }

  const std::string folder_ = scratch("crash");
  const std::string after_ = scratch("crash-after");
};

// By default two saves; LOCKSTEP_ALL_CRASHES=1 makes more of them, one in the place of another.
TEST_F(Crash, AtAnyCallAndWithAnyCallLost) {
  const bool all = std::getenv("LOCKSTEP_ALL_CRASHES") != nullptr;
  const std::vector<std::int64_t> steps =
      all ? std::vector<std::int64_t>{1, 2, 3, 3, 4} : std::vector<std::int64_t>{1, 1};
  const std::int64_t keep = all ? 2 : 1;
  RecordingDisk disk;
  Dice dice(1);
  // The calls after which a step has to be found, whatever else is lost.
  std::map<std::size_t, std::int64_t> durable = {{0, -1}};
  std::int64_t last = -1;
  for (const std::int64_t step : steps) {
    save_sample(disk, folder_, step, dice, all ? 2 : 1);
    for (std::size_t i = disk.calls().size(); i-- > 0;)
      if (disk.calls()[i].kind == DiskCall::Kind::kRename &&
          disk.calls()[i].to.ends_with(folder_name(step))) {
        durable[i + 2] = step;  // the folder is synced next
        ASSERT_EQ(disk.calls()[i + 1].kind, DiskCall::Kind::kSyncFolder);
        break;
      }
    retain(disk, folder_, keep);
    last = step;
  }
  const auto& calls = disk.calls();
  int states = 0, newer = 0;
  for (std::size_t count = 0; count <= calls.size(); ++count) {
    const std::int64_t due = std::prev(durable.upper_bound(count))->second;
    const auto open = losable(calls, count);
    std::vector<std::vector<std::size_t>> losses = {{}, open};
    for (const std::size_t call : open) {
      losses.push_back({call});
      if (!all && call % 4 != 0) continue;
      std::vector<std::size_t> others = open;  // it alone has reached the disk, before all others
      std::erase(others, call);
      losses.push_back(others);
    }
    for (const auto& lost : losses) {
      replay(calls, count, lost, folder_, after_);
      const std::int64_t found = loaded_step();
      ASSERT_GE(found, due) << "after " << count << " calls, " << lost.size()
                            << " of them lost, first " << (lost.empty() ? 0 : lost[0]);
      newer += found > due ? 1 : 0;
      ++states;
    }
  }
  EXPECT_EQ(loaded_step(), last);
  std::printf("%d states after %zu calls; in %d a checkpoint was whole before it had to be\n",
              states, calls.size(), newer);
  EXPECT_GT(states, all ? 5000 : 500);
}

}  // namespace
}  // namespace lockstep::checkpoint
