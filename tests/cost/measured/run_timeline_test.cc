#include "lockstep/cost/measured/run_timeline.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/program/text.h"
#include "tests/cost/programs.h"

namespace lockstep::cost {
namespace {

using program::RankTimeline;
using program::StepTimeline;

const std::string kTimeline = "run.timeline";

// Two ranks of one list, `length` seconds long, with times that have no short decimal form.
RunTimeline sample(const program::Program& program, std::vector<double> lengths) {
  RunTimeline timeline;
  timeline.print = fingerprint(tiny().config, {.batch = 2, .seq = 16});
  timeline.layout = "dp2 zero0 step";
  timeline.program = to_hex(program_hash(program));
  for (const double length : lengths) {
    StepTimeline step{static_cast<std::int64_t>(timeline.steps.size()), {}};
    for (const int rank : {0, 1}) {
      RankTimeline own{{rank}, {0}, {}, {{3, {length / 7}, {length / 6}}}};
      const auto ops = static_cast<int>(program.lists[0].size());
      for (int i = 0; i < ops; ++i)
        own.ops.push_back({i, {length * i / ops}, {length * (i + 1) / ops}});
      step.ranks.push_back(std::move(own));
    }
    timeline.steps.push_back(std::move(step));
  }
  return timeline;
}

program::Program some_program(int microbatches = 2) {
  return program_of({.microbatches = microbatches}, tiny().num_units());
}

TEST(RunTimelineFile, ReadsBackToTheSameBits) {
  const RunTimeline written = sample(some_program(), {0.1, 0.3});
  const std::string text = write_timeline(written);
  const Result<RunTimeline> read = read_timeline(text, kTimeline);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->steps, written.steps);
  EXPECT_EQ(read->print, written.print);
  EXPECT_EQ(write_timeline(*read), text);
  EXPECT_TRUE(check_timeline(*read, some_program(), written.print, "", kTimeline).ok());
}

TEST(RunTimelineFile, TheTypicalStepIsTheMedian) {
  const program::Program program = some_program();
  EXPECT_EQ(sample(program, {5, 1, 2, 9, 3}).typical().step, 4);
  EXPECT_EQ(sample(program, {2, 1}).typical().step, 1);
  EXPECT_EQ(sample(program, {2}).typical().makespan(), Seconds{2});
}

// Every member that is taken away, renamed or of another kind is named; nothing is read as 0.
TEST(RunTimelineFile, RefusesWhatIsNotWhole) {
  const Json whole = Json::parse(write_timeline(sample(some_program(), {1}))).value();
  const auto refused = [](const Json& json, const std::string& says) {
    const Result<RunTimeline> read = read_timeline(json.dump(), kTimeline);
    ASSERT_FALSE(read.ok()) << says;
    EXPECT_NE(read.error().message.find(says), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(kTimeline), std::string::npos) << read.error().message;
  };
  for (const Json::Member& member : whole.members()) {
    Json without = Json::object();
    for (const Json::Member& other : whole.members())
      if (other.key != member.key) without.set(other.key, other.value);
    refused(without, member.key == "schema" ? "has no schema" : "`" + member.key + "` is missing");
  }
  refused(Json(whole).set("schema", "lockstep.timeline/2"),
          "is of schema lockstep.timeline/2, where this program reads lockstep.timeline/1");
  refused(Json(whole).set("steps", Json::array()), "`steps` holds no step");
  const auto with_rank = [&](const char* key, const Json& value) {
    Json rank = whole.find("steps")->items()[0].find("ranks")->items()[0];
    rank.set(key, value);
    const Json step = Json::object({{"step", 0}, {"ranks", Json::array({rank})}});
    return Json(whole).set("steps", Json::array({step}));
  };
  refused(with_rank("ops", Json::array({1.0})), "`steps[0].ranks[0].ops` holds an odd number");
  refused(with_rank("ops", Json::array({1.0, "2"})), "ops` holds what is no time");
  refused(with_rank("ops", Json::array({1.0, -2.0})), "ops` holds what is no time");
  refused(with_rank("lanes", Json::array({100000, 1.0, 2.0})), "lanes` names an op");
  refused(with_rank("rank", "one"), "rank` is no whole number");
  EXPECT_FALSE(read_timeline("{", kTimeline).ok());
}

TEST(RunTimelineFile, RefusesAnotherRun) {
  const program::Program program = some_program();
  const RunTimeline timeline = sample(program, {1});
  const auto error = [&](const program::Program& asked, const Fingerprint& print) {
    const Result<void> checked =
        check_timeline(timeline, asked, print, "dp2 zero0 step", kTimeline);
    return checked.ok() ? "" : checked.error().message;
  };
  for (const Trait& trait : timeline.print) {
    Fingerprint other = timeline.print;
    for (Trait& changed : other)
      if (changed.name == trait.name) changed.value = "other";
    EXPECT_EQ(error(program, other), "`run.timeline` was measured with " + trait.name + " = " +
                                         trait.value + ", asked for is other");
  }
  EXPECT_NE(error(some_program(3), timeline.print).find("of another number of layers"),
            std::string::npos);
  RunTimeline cut = timeline;
  cut.steps[0].ranks[1].ops.pop_back();
  EXPECT_FALSE(check_timeline(cut, program, timeline.print, "", kTimeline).ok());
}

}  // namespace
}  // namespace lockstep::cost
