#include "lockstep/draw/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/json.h"
#include "tests/draw/samples.h"

namespace lockstep::draw {
namespace {

const Json& member(const Json& object, const char* key) {
  const Json* found = object.find(key);
  EXPECT_NE(found, nullptr) << key << " in " << object.dump();
  static const Json kNone;
  return found == nullptr ? kNone : *found;
}

struct Slices {
  std::map<std::int64_t, double> free;  // per thread: end of the last slice
  std::map<std::int64_t, std::int64_t> process;
  std::set<std::pair<std::int64_t, std::string>> named;  // process or thread, kind of name
  std::size_t count = 0, counters = 0;
};

// The rules of "Trace Event Format" (Google, 2016) for the kinds of event that are written, and
// that slices of one thread do not overlap, which viewers draw wrongly unless one holds the other.
void check(const Json& event, Slices& seen) {
  const std::string phase = member(event, "ph").as_text();
  const std::int64_t pid = member(event, "pid").as_int(), tid = member(event, "tid").as_int();
  const double ts = member(event, "ts").as_real();
  EXPECT_GT(pid, 0);
  EXPECT_GE(ts, 0);
  EXPECT_FALSE(member(event, "name").as_text().empty());
  EXPECT_TRUE(member(event, "args").is_object());
  if (phase == "M") {
    EXPECT_TRUE(
        seen.named.insert({tid == 0 ? pid : tid * 1000, member(event, "name").as_text()}).second);
  } else if (phase == "X") {
    const double duration = member(event, "dur").as_real();
    EXPECT_GT(duration, 0);
    EXPECT_GT(tid, 0);
    EXPECT_TRUE(seen.named.contains({tid * 1000, "thread_name"}));
    EXPECT_TRUE(seen.named.contains({pid, "process_name"}));
    EXPECT_EQ(seen.process.try_emplace(tid, pid).first->second, pid);
    EXPECT_LE(seen.free[tid], ts + 1e-6) << event.dump();
    seen.free[tid] = ts + duration;
    ++seen.count;
  } else {
    EXPECT_EQ(phase, "C");
    for (const Json::Member& value : member(event, "args").members())
      EXPECT_TRUE(value.value.is_number());
    ++seen.counters;
  }
}

TEST(Trace, FollowsTheFormat) {
  for (const Figure& figure : all_figures()) {
    const Result<Json> parsed = Json::parse(trace(figure));
    ASSERT_TRUE(parsed.ok()) << figure.title;
    Slices seen;
    for (const Json& event : member(*parsed, "traceEvents").items()) check(event, seen);
    std::size_t bars = 0, levels = 0;
    for (const Band& band : figure.bands) {
      levels += band.memory.size();
      for (const Lane& lane : band.lanes) bars += lane.bars.size();
    }
    EXPECT_EQ(seen.count, bars) << figure.title;
    EXPECT_EQ(seen.counters, levels) << figure.title;
  }
}

TEST(Trace, SaysWhatABarIs) {
  const Json parsed = Json::parse(trace(staged("zbv", {2, 2, 4}))).value();
  EXPECT_EQ(member(member(parsed, "otherData"), "scale").as_text(), "1 F is shown as 1 ms");
  for (const Json& event : member(parsed, "traceEvents").items()) {
    if (member(event, "name").as_text() != "3W2") continue;
    EXPECT_EQ(member(event, "args").dump(), R"({"microbatch":2,"stage":3,"virtual_stage":1})");
    EXPECT_EQ(member(event, "cat").as_text(), "weight gradient");
    EXPECT_EQ(member(event, "dur").as_real(), 1000);
    return;
  }
  FAIL() << "3W2 is missing";
}

TEST(Trace, SecondsAreMicroseconds) {
  Figure figure = staged("1f1b", {1, 1, 1});
  figure.time_unit = "s";
  const Json parsed = Json::parse(trace(figure)).value();
  EXPECT_EQ(member(parsed, "otherData").find("scale"), nullptr);
  for (const Json& event : member(parsed, "traceEvents").items())
    EXPECT_TRUE(member(event, "name").as_text() != "0F0" || member(event, "dur").as_real() == 1e6);
}

// Thirds are no whole nanoseconds; neighbours still touch.
TEST(Trace, RoundingNeverMakesNeighboursOverlap) {
  Figure figure = staged("zbv", {4, 2, 8});
  for (Band& band : figure.bands)
    for (Bar& bar : band.lanes.front().bars) {
      bar.start = bar.start * (1e-3 / 3);
      bar.end = bar.end * (1e-3 / 3);
    }
  figure.time_unit = "s";
  std::map<std::int64_t, std::int64_t> free;  // nanoseconds
  const Json parsed = Json::parse(trace(figure)).value();
  for (const Json& event : member(parsed, "traceEvents").items()) {
    if (member(event, "ph").as_text() != "X") continue;
    const auto nanoseconds = [&](const char* key) {
      return std::llround(member(event, key).as_real() * 1e3);
    };
    std::int64_t& end = free[member(event, "tid").as_int()];
    EXPECT_LE(end, nanoseconds("ts"));
    end = nanoseconds("ts") + nanoseconds("dur");
  }
}

TEST(Trace, HostileTextIsEscaped) {
  Figure figure = staged("1f1b", {1, 1, 1});
  figure.title = "a\"b\\\n</script>\x01\xff";
  const Json parsed = Json::parse(trace(figure)).value();
  EXPECT_EQ(member(member(parsed, "otherData"), "title").as_text(),
            "a\"b\\\n</script>\x01\xEF\xBF\xBD");
}

TEST(Trace, SameFigureSameBytes) {
  EXPECT_EQ(trace(staged("zbv", {4, 2, 8})), trace(staged("zbv", {4, 2, 8})));
}

// A prediction above a run: a run whose ranks took just the simulated times is drawn just so, and
// events of both keep apart.
TEST(Trace, HoldsPredictionAndRun) {
  for (const Lowered& sample : lowered_samples()) {
    program::StepTimeline run;
    for (std::size_t c = 0; c < sample.program.lists.size(); ++c)
      for (const int replica : {0, 1})
        run.ranks.push_back({{static_cast<int>(2 * c) + replica},
                             {static_cast<int>(c)},
                             sample.simulation.coords[c],
                             sample.simulation.lanes[c]});
    const auto units = static_cast<std::size_t>(sample.program.step.units());
    program::ProgramBytes bytes;
    bytes.units.resize(units, {.stash = 8});
    bytes.tokens.resize(sample.program.lists.size());
    bytes.constants.resize(sample.program.lists.size());
    std::vector<Figure> both = {figure_of(sample.program, sample.simulation, bytes),
                                figure_of(sample.program, run, bytes)};
    both[0].title = "predicted";
    both[1].title = "measured";
    ASSERT_EQ(both[1].bands.size(), 2 * both[0].bands.size());
    EXPECT_EQ(both[0].makespan, both[1].makespan);
    for (std::size_t r = 0; r < both[1].bands.size(); ++r)
      EXPECT_EQ(both[1].bands[r].lanes.size(), both[0].bands[r / 2].lanes.size());
    const Json parsed = Json::parse(trace(both)).value();
    Slices seen;
    std::set<std::string> names;
    for (const Json& event : member(parsed, "traceEvents").items()) {
      check(event, seen);
      if (member(event, "name").as_text() == "process_name")
        names.insert(member(member(event, "args"), "name").as_text());
    }
    EXPECT_EQ(names.size(), 3 * both[0].bands.size());
    EXPECT_TRUE(names.contains("predicted: pipeline rank 1")) << sample.name;
    EXPECT_TRUE(names.contains("measured: rank 3")) << sample.name;
    EXPECT_EQ(member(member(parsed, "otherData"), "figures").items().size(), 2u);
  }
}

// Two transfers to one peer may be on their way at once.
TEST(Trace, MeasuredTransfersThatOverlapAreDrawnApart) {
  const Lowered sample = lowered_samples().front();
  program::StepTimeline run;
  for (std::size_t c = 0; c < sample.program.lists.size(); ++c) {
    run.ranks.push_back({{static_cast<int>(c)},
                         {static_cast<int>(c)},
                         sample.simulation.coords[c],
                         sample.simulation.lanes[c]});
    for (program::TimedOp& op : run.ranks.back().lanes) op.end += Seconds{2.5};
  }
  program::ProgramBytes bytes;
  bytes.units.resize(static_cast<std::size_t>(sample.program.step.units()));
  bytes.tokens.resize(sample.program.lists.size());
  bytes.constants.resize(sample.program.lists.size());
  Slices seen;
  const Json parsed = Json::parse(trace(figure_of(sample.program, run, bytes))).value();
  for (const Json& event : member(parsed, "traceEvents").items()) check(event, seen);
}

}  // namespace
}  // namespace lockstep::draw
