#include "lockstep/metrics/metrics_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;

class MetricsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lockstep-metrics-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
    path_ = (dir_ / "metrics.jsonl").string();
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  void put(const std::string& text) const { std::ofstream(path_) << text; }
  static Json line_of(int step) { return event_line("step", step).set("loss", 1.0 / step); }
  static std::string step_line(int step) { return line_of(step).dump() + "\n"; }

  fs::path dir_;
  std::string path_;
};

TEST_F(MetricsFileTest, HasEveryLineAsSoonAsItIsAdded) {
  Result<MetricsFile> file = MetricsFile::create(path_);
  ASSERT_TRUE(file.ok());
  std::string expected;
  for (int step = 1; step < 4; ++step) {
    ASSERT_TRUE(file->add(line_of(step)).ok());
    expected += step_line(step);
    EXPECT_EQ(content(path_), expected);
  }
}

TEST_F(MetricsFileTest, IsNeverWrittenOver) {
  put(step_line(1));
  const Result<MetricsFile> file = MetricsFile::create(path_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, Code::kBadMetrics);
  EXPECT_EQ(content(path_), step_line(1));
}

// Wherever the run that was killed got to in its file, a resumed one leaves each step once.
TEST_F(MetricsFileTest, ResumedLooksAsIfNothingHadHappened) {
  const std::string whole = step_line(1) + step_line(2) + event_line("save", 2).dump() + "\n" +
                            step_line(3) + step_line(4);
  const std::size_t kept = (step_line(1) + step_line(2)).size();
  for (std::size_t cut = kept; cut <= whole.size(); cut += 13) {
    put(whole.substr(0, cut));
    {
      Result<MetricsFile> file = MetricsFile::resume(path_, 2);
      ASSERT_TRUE(file.ok()) << file.error().message;
      ASSERT_TRUE(file->add(Json::parse(step_line(3)).value()).ok());
    }
    const std::string saved = event_line("save", 2).dump() + "\n";
    const bool had_saved = cut >= kept + saved.size();
    EXPECT_EQ(content(path_), whole.substr(0, kept) + (had_saved ? saved : "") + step_line(3))
        << "cut at " << cut;
    EXPECT_FALSE(fs::exists(path_ + ".new"));
  }
}

TEST_F(MetricsFileTest, ResumesWithoutAFileAndLeavesStrangeOnesAlone) {
  EXPECT_TRUE(MetricsFile::resume(path_, 5).ok());
  EXPECT_EQ(content(path_), "");
  for (const char* strange : {"{}\n", "[1]\n", "{\"step\":1.5}\n", "hello\n{\"step\":1}\n"}) {
    put(strange);
    const Result<MetricsFile> file = MetricsFile::resume(path_, 5);
    ASSERT_FALSE(file.ok()) << strange;
    EXPECT_EQ(file.error().code, Code::kBadMetrics);
    EXPECT_NE(file.error().message.find("line 1"), std::string::npos) << file.error().message;
    EXPECT_EQ(content(path_), strange);
  }
}

}  // namespace
}  // namespace lockstep::metrics
