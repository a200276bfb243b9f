// What must not be lost and must not hang, seen from a shell: run folders, damaged checkpoints,
// full disks, ranks that differ, signals while a job starts. tests/oracles/survivors_test.py has
// the kills.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <linux/capability.h>
#include <sys/prctl.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/comm/address.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class SafeHandsSlow : public Binary {
 protected:
  static std::string train(const std::string& more) {
    return "train " + support::source_dir() + "/examples/tiny.toml --mock-data " + more;
  }
  static std::string of(int steps) { return "--set train.steps=" + std::to_string(steps) + " "; }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  void hurt(const std::string& name) {
    std::FILE* const file = std::fopen((dir_ / name).c_str(), "r+b");
    ASSERT_NE(file, nullptr) << name;
    std::fseek(file, -64, SEEK_END);
    const int byte = std::fgetc(file);
    std::fseek(file, -1, SEEK_CUR);
    std::fputc(byte ^ 0x40, file);
    std::fclose(file);
  }
  // Times of last change and sizes of all files.
  std::string state_of(const std::string& folder) {
    std::ostringstream text;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / folder))
      if (entry.is_regular_file() && entry.path().filename() != ".lock")
        text << entry.path() << " " << entry.file_size() << " "
             << entry.last_write_time().time_since_epoch().count() << "\n";
    return text.str();
  }
  // Files cannot grow beyond so many blocks of 512 bytes: the kernel refuses, as a full disk does.
  static std::string with_file_limit(int blocks) {
    return "sh -c 'trap \"\" XFSZ; ulimit -f " + std::to_string(blocks) + "; exec \"$@\"' sh";
  }
  static void allow(const std::string& folder, fs::perms what) { fs::permissions(folder, what); }
  // Processes that `body` starts are bound by the modes of files, whoever runs this test: root is
  // not otherwise.
  static void bound_by_modes(const std::function<void()>& body) {
    std::thread([&] {
      ::prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);  // of this thread; no right of others
      body();
    }).join();
  }
  // What a launcher tells one of its ranks; the same for a shell.
  static std::vector<std::string> variables(int rank, int port, int ranks = 2) {
    return {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(ranks),
            "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)};
  }
  static std::string place(int rank, int port, int ranks = 2) {
    std::string text;
    for (const std::string& variable : variables(rank, port, ranks)) text += variable + " ";
    return text;
  }
  static std::vector<std::string> endless() {
    return {"train",
            support::source_dir() + "/examples/tiny.toml",
            "--mock-data",
            "--set",
            "train.steps=1000000",
            "--set",
            "layout.dp=2"};
  }
  static int free_port() {
    const int listener = comm::listen_at("127.0.0.1", 0);
    const int port = comm::port_of(listener);
    ::close(listener);
    return port;
  }
};

TEST_F(SafeHandsSlow, LinksInARunFolderAreNotFollowed) {
  fs::create_directories(dir_ / "victim/inner");
  write("victim/inner/thesis", "years of work");
  fs::create_directories(dir_ / "run");
  fs::create_directory_symlink(dir_ / "victim", dir_ / "run/step-00000009.tmp-x");
  ASSERT_EQ(run(train(of(2) + "--save run")).code, 0);
  EXPECT_TRUE(fs::exists(dir_ / "victim/inner/thesis"));
}

TEST_F(SafeHandsSlow, DamageInThePayloadIsSetAsideAndTheRunGoesOn) {
  const std::string save = of(4) + "--save run --save-interval 1 --keep 3 ";
  const Ran whole = run(train(of(4) + "--oracle"));
  ASSERT_EQ(run(train(of(3) + "--save run --save-interval 1 --keep 3")).code, 0);
  hurt("run/step-00000003/rank-00000.safetensors");
  const Ran ran = run(train(save + "--resume"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "run/step-00000002 after 2 steps")) << ran.out;
  EXPECT_TRUE(has(ran.out, "run/step-00000003.damaged")) << ran.out;
  EXPECT_TRUE(fs::exists(dir_ / "run/step-00000003.damaged/rank-00000.safetensors"));
  EXPECT_TRUE(fs::exists(dir_ / "run/step-00000004"));
  const Ran checked = run("checkpoint verify run/step-00000003.damaged");
  EXPECT_NE(checked.code, 0) << checked.out;
}

TEST_F(SafeHandsSlow, WhereAllAreDamagedNothingBegins) {
  ASSERT_EQ(run(train(of(1) + "--save run")).code, 0);
  hurt("run/step-00000001/rank-00000.safetensors");
  for (const char* resume : {"--resume", "--resume=auto"}) {
    const Ran ran = run(train(of(2) + "--save run " + resume));
    EXPECT_EQ(ran.code, 3) << ran.out << ran.err;
    EXPECT_TRUE(has(ran.err, "LS0823")) << ran.err;
    EXPECT_TRUE(fs::exists(dir_ / "run/step-00000001"));
  }
}

TEST_F(SafeHandsSlow, ARunThatDiedBeforeItsFirstCheckpointBeginsAgain) {
  for (const char* resume : {"--resume=auto", ""}) {
    fs::remove_all(dir_ / "run");
    {
      Running job({"train", support::source_dir() + "/examples/tiny.toml", "--mock-data", "--set",
                   "train.steps=100000", "--save", (dir_ / "run").string(), "--oracle"});
      ASSERT_TRUE(job.wait_for("step 2 "));
      job.signal(SIGKILL);
    }
    const Ran strict = run(train(of(2) + "--save run --resume"));
    EXPECT_EQ(strict.code, 3);
    EXPECT_TRUE(has(strict.err, "--resume=auto begins a run there")) << strict.err;
    const Ran ran = run(train(of(2) + "--save run " + resume));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(fs::exists(dir_ / "run/step-00000002"));
    EXPECT_TRUE(fs::exists(dir_ / "run/metrics-1.jsonl")) << "what the first told is kept";
  }
  const Ran more = run(train(of(3) + "--save run --resume=auto"));
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_TRUE(has(more.out, "run/step-00000002 after 2 steps")) << more.out;
}

TEST_F(SafeHandsSlow, ASecondRunInAFolderIsRefusedAndTheFirstGoesOn) {
  Running first({"train", support::source_dir() + "/examples/tiny.toml", "--mock-data", "--set",
                 "train.steps=100000", "--save", (dir_ / "run").string(), "--save-interval", "1",
                 "--oracle"});
  ASSERT_TRUE(first.wait_for("step 4 "));
  const Ran second = run(train(of(9) + "--save run --resume"));
  EXPECT_EQ(second.code, 2) << second.out << second.err;
  EXPECT_TRUE(has(second.err, "`run` is in use by process ")) << second.err;
  ASSERT_TRUE(first.wait_for("step 8 ")) << "the first run has died";
  first.signal(SIGTERM);
  EXPECT_EQ(first.finish().code, 143);
}

TEST_F(SafeHandsSlow, AResumeWithNothingToDoTouchesNothing) {
  ASSERT_EQ(run(train(of(2) + "--set layout.dp=2 --save run")).code, 0);
  const std::string before = state_of("run");
  const Ran ran = run(train(of(2) + "--save run --resume"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "nothing left to do")) << ran.out;
  EXPECT_EQ(state_of("run"), before);
}

// Files of more than 32 KiB cannot be written from some step on: checkpoints fail, metrics do not,
// the run goes on to its end and says how to go on from the last good one.
TEST_F(SafeHandsSlow, AFullDiskFailsSavesAndNotTheRun) {
  ASSERT_EQ(run(train(of(2) + "--save run --save-interval 1")).code, 0);
  const Ran ran =
      run(train(of(6) + "--save run --save-interval 1 --resume --every 1"), with_file_limit(64));
  EXPECT_EQ(ran.code, 3) << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "\n      6 ")) << ran.out;
  EXPECT_TRUE(has(ran.err, "step 3 is not saved: ")) << ran.err;
  EXPECT_FALSE(has(ran.err, "step 4 is not saved: ")) << "said more than once a minute" << ran.err;
  EXPECT_TRUE(has(ran.err, "the last good checkpoint is run/step-00000002")) << ran.err;
  EXPECT_TRUE(has(ran.err, "--resume")) << ran.err;
  EXPECT_TRUE(fs::exists(dir_ / "run/step-00000002"));
  EXPECT_FALSE(fs::exists(dir_ / "run/step-00000006"));
  for (const auto& entry : fs::directory_iterator(dir_ / "run"))
    EXPECT_FALSE(has(entry.path().string(), ".tmp-")) << entry.path();
  const Ran again = run(train(of(6) + "--save run --resume"));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(fs::exists(dir_ / "run/step-00000006"));
}

// A folder that turns read-only while a run saves to it after every step fails its saves, which is
// said once, not every step. The next save that can be written is.
TEST_F(SafeHandsSlow, AReadOnlyFolderFailsSavesAndNotTheRun) {
  const std::string folder = (dir_ / "run").string();
  const std::vector<std::string> words = {"train",
                                          support::source_dir() + "/examples/tiny.toml",
                                          "--mock-data",
                                          "--set",
                                          "train.steps=100000",
                                          "--save",
                                          folder,
                                          "--save-interval",
                                          "1",
                                          "--oracle"};
  std::optional<Running> job;
  bound_by_modes([&] { job.emplace(words); });
  ASSERT_TRUE(job->wait_for("step 4 "));
  allow(folder, fs::perms::owner_read | fs::perms::owner_exec);
  ASSERT_TRUE(job->wait_for("is not saved: ")) << "the run has died";
  const std::string before = job->told();
  const int failed = std::stoi(before.substr(before.rfind("\nstep ") + 6));
  ASSERT_TRUE(job->wait_for("step " + std::to_string(failed + 20) + " ")) << "the run has died";
  allow(folder, fs::perms::owner_all);
  job->signal(SIGTERM);
  const Ran ran = job->finish();
  EXPECT_EQ(ran.code, 143) << ran.out;
  EXPECT_EQ(ran.out.find("is not saved"), ran.out.rfind("is not saved")) << ran.out;
  EXPECT_TRUE(has(ran.out, "; training continues\n")) << ran.out;
  const Ran listed = run("checkpoint verify run");
  EXPECT_EQ(listed.code, 0) << listed.out << listed.err;
  const std::string last = ran.out.substr(ran.out.rfind("\nstep ") + 6);
  EXPECT_TRUE(has(listed.out, strf("step-%08d", std::stoi(last)))) << last << listed.out;
  // One that begins there is refused before it trains.
  allow(folder, fs::perms::owner_read | fs::perms::owner_exec);
  Ran refused;
  bound_by_modes([&] { refused = run(train(of(9) + "--save run --resume")); });
  EXPECT_EQ(refused.code, 3) << refused.out << refused.err;
  EXPECT_TRUE(has(refused.err, ": permission denied")) << refused.err;
  allow(folder, fs::perms::owner_all);
}

// Metrics alone may be lost too.
TEST_F(SafeHandsSlow, MetricsThatCannotBeWrittenDoNotEndARun) {
  const Ran ran = run(train(of(40) + "--metrics m --oracle"), with_file_limit(4));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.err, "of metrics lost")) << ran.err;
  std::ifstream file(dir_ / "m/metrics.jsonl");
  for (std::string line; std::getline(file, line);) EXPECT_TRUE(line.ends_with('}')) << line;
}

TEST_F(SafeHandsSlow, RanksOfOtherSettingsAreRefusedOnEveryRankWithWhatDiffers) {
  const int port = free_port();
  const std::string words = train("--set layout.dp=2 ");
  Ran one;
  std::thread other([&] { one = run(words + of(20), place(1, port)); });
  const Ran zero = run(words + of(10), place(0, port));
  other.join();
  for (const Ran& ran : {zero, one}) {
    EXPECT_EQ(ran.code, 4) << ran.out << ran.err;
    EXPECT_TRUE(has(ran.err, "train.steps is 20 there and 10 on rank 0")) << ran.err;
  }
}

TEST_F(SafeHandsSlow, ARankThatComesTwiceIsRefusedAndTheFirstGoesOn) {
  const int port = free_port();
  const std::string words = train("--set layout.dp=2 " + of(3));
  Ran first, second;
  std::thread one([&] { first = run(words, place(1, port)); });
  std::thread two([&] { second = run(words, place(1, port)); });
  const Ran zero = run(words, place(0, port));
  one.join();
  two.join();
  EXPECT_EQ(zero.code, 0) << zero.err;
  EXPECT_EQ(std::min(first.code, second.code), 0) << first.err << second.err;
  EXPECT_EQ(std::max(first.code, second.code), 4);
  EXPECT_TRUE(has(first.err + second.err, "rank 1 has come to 127.0.0.1:")) << first.err;
}

// Even where it has ranks that the first has not.
TEST_F(SafeHandsSlow, ASecondJobAtAPortIsRefusedOnEveryRankAndTheFirstGoesOn) {
  const int port = free_port();
  Running zero(endless(), variables(0, port)), one(endless(), variables(1, port));
  ASSERT_TRUE(zero.wait_for("tokens/s"));
  Ran second[4];
  std::vector<std::thread> ranks;
  for (int i = 0; i < 4; ++i)
    ranks.emplace_back(
        [&, i] { second[i] = run(train("--set layout.dp=4 " + of(3)), place(i, port, 4)); });
  for (std::thread& rank : ranks) rank.join();
  const std::string where = "127.0.0.1:" + std::to_string(port);
  const std::string known = "rank 1 has come to " + where + " already: process ";
  const std::string strange = " of 4 has come to a job of 2 ranks at " + where;
  EXPECT_TRUE(has(second[0].err, "it is in use, perhaps by another job")) << second[0].err;
  EXPECT_TRUE(has(second[1].err, known + std::to_string(one.pid()) + " on ")) << second[1].err;
  EXPECT_TRUE(has(second[2].err, "rank 2" + strange)) << second[2].err;
  EXPECT_TRUE(has(second[3].err, "rank 3" + strange)) << second[3].err;
  for (const Ran& ran : second) EXPECT_EQ(ran.code, 4) << ran.out << ran.err;
  for (Running* const first : {&zero, &one}) first->signal(SIGTERM);
  for (Running* const first : {&zero, &one}) {
    const Ran ran = first->finish(Deadline::after(Seconds{20}));
    EXPECT_EQ(ran.code, 143) << ran.out;
  }
}

// Addresses at which a process listens, as the kernel writes them: 0100007F is 127.0.0.1.
std::vector<std::string> listens_at(int process) {
  const fs::path of_process = "/proc/" + std::to_string(process);
  std::set<std::string> sockets;
  for (const auto& entry : fs::directory_iterator(of_process / "fd")) {
    std::error_code gone;
    sockets.insert(fs::read_symlink(entry, gone));
  }
  std::vector<std::string> found;
  for (const char* family : {"net/tcp", "net/tcp6"}) {
    std::ifstream file(of_process / family);
    for (std::string line; std::getline(file, line);) {
      std::istringstream text(line);
      std::string number, local, remote, state, skipped, inode;
      text >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) text >> skipped;
      text >> inode;
      if (state == "0A" && sockets.contains("socket:[" + inode + "]"))
        found.push_back(local.substr(0, local.find(':')));
    }
  }
  return found;
}

TEST_F(SafeHandsSlow, AJobOnLoopbackListensNowhereElse) {
  const int port = free_port();
  Running zero(endless(), variables(0, port)), one(endless(), variables(1, port));
  ASSERT_TRUE(zero.wait_for("tokens/s"));
  const std::vector<std::string> at = listens_at(zero.pid());
  EXPECT_GE(at.size(), 2u) << "the store and lifelines of others";
  for (const Running* const rank : {&zero, &one})
    for (const std::string& address : listens_at(rank->pid())) EXPECT_EQ(address, "0100007F");
}

TEST_F(SafeHandsSlow, TooFewDescriptorsAreRefused) {
  const std::string words = train("--set layout.dp=2 " + of(3));
  const std::string limit = "sh -c 'ulimit -n 40; exec \"$@\"' sh";
  const Ran ran = run(words, place(0, free_port()) + " " + limit);
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_TRUE(has(ran.err, "may open 40 files and sockets, and may need 80")) << ran.err;
}

TEST_F(SafeHandsSlow, WhatCannotFitIntoMemoryIsRefusedBeforeWeightsAreDrawn) {
  for (const char* more : {"", "--processes "}) {
    const Ran ran =
        run(train("--set layout.dp=2 --set model.ffn=1000000000 " + std::string(more)), "");
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_TRUE(has(ran.err, "tensors of 2 ranks take ")) << ran.err;
  }
}

// What is trained is told before initial weights are drawn, in a pipe too, and their draw, which
// takes seconds here, ends when it is asked to.
TEST_F(SafeHandsSlow, ADrawOfWeightsCanBeInterrupted) {
  for (const char* more : {"--every=1", "--processes"})
    for (const int number : {SIGINT, SIGTERM}) {
      std::vector<std::string> words = {"train", support::source_dir() + "/examples/tiny.toml",
                                        "--mock-data", more};
      for (const char* change :
           {"layout.dp=2", "model.hidden=1024", "model.ffn=4096", "batch.seq=4",
            "batch.global_batch=2", "batch.microbatch=1", "train.steps=1"})
        words.insert(words.end(), {"--set", change});
      Running job(words);
      ASSERT_TRUE(job.wait_for(" of tensors at the peak of rank 0")) << more;
      const RealClock clock;
      job.signal(number);
      const Ran ran = job.finish();
      EXPECT_EQ(ran.code, 143) << more << ran.out;
      EXPECT_TRUE(has(ran.out, "asked to stop while initial weights were drawn") ||
                  has(ran.out, "asked to stop before the first step"))
          << ran.out;
      EXPECT_FALSE(has(ran.out, "grad norm")) << ran.out;
      EXPECT_LT(clock.now().since_start.value, 10) << more;
    }
}

// A rank that waits for others says so, and ends when it is asked to.
TEST_F(SafeHandsSlow, AStartCanBeInterrupted) {
  for (const int rank : {0, 1}) {
    Running waits(endless(), variables(rank, free_port()));
    ASSERT_TRUE(waits.wait_for("127.0.0.1")) << rank;
    const RealClock clock;
    waits.signal(SIGINT);
    EXPECT_EQ(waits.finish().code, 143);
    EXPECT_LT(clock.now().since_start.value, 10) << rank << ": the meeting takes 60 s";
  }
}

TEST_F(SafeHandsSlow, SeveralSlurmTasksWithoutRanksAreRefused) {
  const Ran ran = run(train(of(1)), "SLURM_PROCID=0 SLURM_NTASKS=2");
  EXPECT_EQ(ran.code, 3) << ran.out;
  EXPECT_TRUE(has(ran.err, "SLURM_NTASKS is 2, but RANK is not set")) << ran.err;
  EXPECT_TRUE(has(ran.err, "--processes") && has(ran.err, "RANK=$SLURM_PROCID")) << ran.err;
  EXPECT_EQ(run(train(of(1)), "SLURM_PROCID=0 SLURM_NTASKS=1").code, 0);
}

// SIGHUP saves and ends like SIGTERM.
TEST_F(SafeHandsSlow, AHangUpSaves) {
  Running job({"train", support::source_dir() + "/examples/tiny.toml", "--mock-data", "--set",
               "train.steps=100000", "--save", (dir_ / "run").string(), "--oracle"});
  ASSERT_TRUE(job.wait_for("step 2 "));
  job.signal(SIGHUP);
  EXPECT_EQ(job.finish().code, 143);
  EXPECT_TRUE(fs::exists(dir_ / "run/latest"));
}

}  // namespace
}  // namespace lockstep::cli
#endif
