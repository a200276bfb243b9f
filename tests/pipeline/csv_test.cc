#include "lockstep/pipeline/csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/validate.h"
#include "tests/support/golden.h"

namespace lockstep::pipeline {
namespace {

struct File {
  std::string name;  // "zbv_p4_v2_m8"
  std::string text;
  std::string row;  // of the catalogue
  Shape shape;
};

// Files that torch.distributed.pipelining wrote, see make_pipelining_csv.py.
std::vector<File> files() {
  std::vector<File> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(support::source_dir() + "/tests/golden/pipelining")) {
    if (entry.path().extension() != ".csv") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    File file = {entry.path().stem().string(), text.str(), "", {}};
    file.row = file.name.substr(0, file.name.find('_'));
    const auto number = [&](const char* mark) {
      return std::stoi(file.name.substr(file.name.find(mark) + 2));
    };
    file.shape = {number("_p"), number("_v"), number("_m")};
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &File::name);
  return files;
}

// PyTorch's groups are not p but as many as divide the microbatches into max(1, m / p) rounds.
int group_of(const Shape& shape) {
  return shape.microbatches / std::max(1, shape.microbatches / shape.coords);
}

Schedule ours(const File& file) {
  const CatalogRow row = find(file.row).value();
  if (row.build_grouped == nullptr) return row.build(file.shape).value();
  return row.build_grouped(file.shape, group_of(file.shape)).value();
}

// The first pass of every row in which the two differ.
std::string differences(const CsvSheet& theirs, const Schedule& ours) {
  std::string text;
  for (std::size_t row = 0; row < theirs.rows.size(); ++row) {
    std::vector<Pass> passes;
    for (const auto& cell : theirs.rows[row]) passes.insert(passes.end(), cell.begin(), cell.end());
    const auto own = ours.passes({static_cast<int>(row)});
    const auto [their, our] = std::ranges::mismatch(passes, own);
    if (their == passes.end() && our == own.end()) continue;
    text += "  rank " + std::to_string(row) + ", pass " + std::to_string(our - own.begin()) + ": " +
            (their == passes.end() ? "none" : to_text(*their)) + ", ours " +
            (our == own.end() ? "none" : to_text(*our)) + "\n";
  }
  return text;
}

// Why a file of PyTorch's is not what we generate; every other file is.
const std::map<std::string, std::string> kReasons = {
    {"1f1b_drawn_p4_v1_m8",
     "the order that Schedule1F1B keeps for drawing counts the forwards of the last rank from 1: "
     "they begin behind the last of the warm-up, and it has none. It runs the order of 1f1b_p4"},
    {"looped-bfs_p2_v2_m3",
     "PyTorch takes backward passes of a stage from the last microbatch to the first; ours ascend, "
     "so that every schedule adds gradients in one order"},
    {"looped-bfs_comms_p2_v2_m3", "it is in the compute_comms format"},
};

TEST(Csv, FilesOfPyTorchAreReadValidAndWrittenBackUnchanged) {
  int equal = 0, cells = 0, idle = 0;
  std::string text;
  for (const File& file : files()) {
    SCOPED_TRACE(file.name);
    const Result<CsvSheet> sheet = parse_csv(file.text);
    const Result<Schedule> schedule = from_csv(file.text);
    text += file.name + ".csv: ";
    if (sheet.ok()) {
      EXPECT_EQ(to_csv(*sheet), file.text);
      for (const auto& row : sheet->rows)
        for (const auto& cell : row) ++cells, idle += cell.empty();
    }
    if (!schedule.ok()) {
      text += "refused, " + kReasons.at(file.name) + "\n  " + schedule.error().message + "\n" +
              (sheet.ok() ? differences(*sheet, ours(file)) : "");
      continue;
    }
    EXPECT_EQ(schedule->shape(), file.shape);
    EXPECT_EQ(*schedule, ours(file)) << differences(*sheet, ours(file));
    EXPECT_FALSE(kReasons.contains(file.name));
    const bool is_grouped = find(file.row)->build_grouped != nullptr;
    text += "equals `" + file.row + "`" +
            (is_grouped ? " in groups of " + std::to_string(group_of(file.shape)) : "") + "\n";
    ++equal;

    const int stages = file.shape.stages();
    const auto program =
        program::lower(*schedule, {.stage_begin = program::split_units(stages + 2, stages)});
    ASSERT_TRUE(program.ok()) << program.error().message;
    EXPECT_TRUE(program::validate(*program).empty());
    EXPECT_TRUE(program::check_deadlock(*program, program::Transport::kTagged).ok());
  }
  std::cout << equal << " files equal ours, " << kReasons.size() << " do not; " << cells
            << " cells, " << idle << " of them idle\n";
  EXPECT_TRUE(support::matches_golden("schedule/pipelining.txt", text));
}

TEST(Csv, KeepsIdleCellsAndOverlaps) {
  const Result<CsvSheet> sheet = parse_csv("0F0, 0F1 ,,(0F2;1B0)OVERLAP_F_B\n,,1F0,\n");
  ASSERT_TRUE(sheet.ok()) << sheet.error().message;
  ASSERT_EQ(sheet->rows[0].size(), 4u);
  EXPECT_EQ(sheet->rows[0][3],
            (CsvSheet::Cell{{PassKind::kForward, {0}, {2}}, {PassKind::kBackward, {1}, {0}}}));
  EXPECT_EQ(to_csv(*sheet), "0F0,0F1,,(0F2;1B0)OVERLAP_F_B\r\n,,1F0,\r\n");
}

TEST(Csv, EveryScheduleReadsBack) {
  int schedules = 0;
  for (const CatalogRow& row : catalog())
    for (int p = 1; p <= 4; ++p)
      for (int v = 1; v <= 3; ++v)
        for (const int m : {1, 2, 5, 8}) {
          const Result<Schedule> made = row.build({p, v, m});
          if (!made.ok()) continue;
          ++schedules;
          const Result<Schedule> back = from_csv(to_csv(*made));
          ASSERT_TRUE(back.ok()) << back.error().message;
          EXPECT_EQ(to_text(*back), to_text(*made));
          EXPECT_EQ(back->shape(), made->shape());
          // A V over one row is a loop.
          EXPECT_EQ(back->placement(), p == 1 ? Placement::kLoop : made->placement());
        }
  std::cout << schedules << " schedules read back\n";
}

std::string refusal(const std::string& text) {
  const Result<Schedule> made = from_csv(text);
  if (made.ok()) return "no error";
  return to_text(made.error().code) + " " + made.error().message + "\n  " + made.error().help;
}

TEST(Csv, ErrorsNameRowColumnAndCell) {
  std::string text;
  for (const std::string csv : {
           "",
           "\n\n",
           "0F0,0X0\n",
           "0F0,0F\n",
           "0F0,F0\n",
           "0F0,0B0x\n",
           "0F0,-1B0\n",
           "0F0,\"0B0\"\n",
           "0F0,0B99999999999\n",
           "0F0,0B99999999\n",
           "0F0,0SEND_F0\n",
           "0UNSHARD,0F0,0B0\n",
           "0F0,0B0,0REDUCE_GRAD\n",
           "0F0,(0F1;0B0)OVERLAP\n",
           "0F0,(0F1;0B0\n",
           "0F0,(0B0;0F1)OVERLAP_F_B\n",
           "0F0,(0F1)OVERLAP_F_B\n",
           "0F0,(0F1;0RECV_F0)OVERLAP_F_B\n",
           "0F0,0B0\n1F0,0B1\n",                   // a stage in two rows
           "0F0,0B0,3F0\n1F0,1B0\n",               // no stage 2
           "0F0,0B0,2F0,2B0\n1F0,1B0\n",           // three stages
           "1F0,1B0\n0F0,0B0\n",                   // not even the first in its row
           "0F0,3F0\n1F0,4F0\n2F0,5F0\n",          // a loop, of which only F
           "0F0,4F0\n1F0,3F0\n2F0,5F0\n",          // stage 3 is in no row it may be in
           "0F0,3F0\n1F0,5F0\n2F0,4F0\n",          // a loop, until stage 4
           "0F0,5F0\n1F0,3F0\n2F0,4F0\n",          // neither
           "0F0,0F1,0B1,0B0\n",                    // backward passes descend
           "0F0,0F0,0B0\n",                        // twice
           "0F0,0B0,0I0\n",                        // B and I
           "0F0,,,1F0,,0B0,1B0\n",                 // a circle in one row
           "0F0,0B0,0F1,0B1\n1F0,1F1,,1B0,1B1\n",  // and over two
       }) {
    std::string shown = csv;
    for (std::size_t at = 0; (at = shown.find('\n', at)) != shown.npos; at += 2)
      shown.replace(at, 1, "\\n");
    text += shown + "\n  " + refusal(csv) + "\n";
  }
  EXPECT_TRUE(support::matches_golden("schedule/csv_errors.txt", text));
}

}  // namespace
}  // namespace lockstep::pipeline
