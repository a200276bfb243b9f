#include "lockstep/cost/measured/run_timeline.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/cost/measured/schema_file.h"
#include "lockstep/program/text.h"

namespace lockstep::cost {
namespace {

using program::RankTimeline;
using program::StepTimeline;
using program::Timeline;

constexpr std::string_view kTimelineSchema = "lockstep.timeline/1";
constexpr const char* kTimelineRemedy = "write one with lockstep train RUN --timeline FILE";

// Flat arrays: a run has thousands of ops. Of the list the index of an op is its place.
Json times_of(const Timeline& ops) {
  Json times = Json::array();
  for (const program::TimedOp& op : ops) times.push(op.start.value).push(op.end.value);
  return times;
}

Json lanes_of(const Timeline& lanes) {
  Json times = Json::array();
  for (const program::TimedOp& op : lanes)
    times.push(op.op).push(op.start.value).push(op.end.value);
  return times;
}

double number_at(JsonFields& fields, std::string_view key, std::size_t index) {
  const Json& item = fields.list(key)[index];
  const double value = item.is_number() ? item.as_real() : -1;
  if (!(value >= 0 && std::isfinite(value))) fields.refuse(key, "holds what is no time");
  return value;
}

Timeline read_ops(JsonFields& fields) {
  Timeline ops;
  const std::size_t size = fields.list("ops").size();
  if (size % 2 != 0) fields.refuse("ops", "holds an odd number of times");
  for (std::size_t i = 0; i + 1 < size; i += 2)
    ops.push_back({static_cast<std::int32_t>(i / 2),
                   {number_at(fields, "ops", i)},
                   {number_at(fields, "ops", i + 1)}});
  return ops;
}

Timeline read_lanes(JsonFields& fields, std::size_t ops) {
  Timeline lanes;
  const std::size_t size = fields.list("lanes").size();
  if (size % 3 != 0) fields.refuse("lanes", "is not a list of op, start, end");
  for (std::size_t i = 0; i + 2 < size; i += 3) {
    const double op = number_at(fields, "lanes", i);
    if (op != std::floor(op) || op >= static_cast<double>(ops))
      fields.refuse("lanes", "names an op that is not in the list");
    lanes.push_back({static_cast<std::int32_t>(op),
                     {number_at(fields, "lanes", i + 1)},
                     {number_at(fields, "lanes", i + 2)}});
  }
  return lanes;
}

RankTimeline read_rank(JsonFields fields) {
  RankTimeline rank;
  rank.rank = {static_cast<std::int32_t>(fields.integer("rank"))};
  rank.coord = {static_cast<std::int32_t>(fields.integer("coord"))};
  rank.ops = read_ops(fields);
  rank.lanes = read_lanes(fields, rank.ops.size());
  return rank;
}

}  // namespace

const StepTimeline& RunTimeline::typical() const {
  LS_CHECK(!steps.empty(), "no step");
  std::vector<const StepTimeline*> all;
  for (const StepTimeline& step : steps) all.push_back(&step);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle, {},
                           [](const StepTimeline* step) { return step->makespan(); });
  return **middle;
}

std::string write_timeline(const RunTimeline& timeline) {
  Json steps = Json::array();
  for (const StepTimeline& step : timeline.steps) {
    Json ranks = Json::array();
    for (const RankTimeline& rank : step.ranks)
      ranks.push(Json::object({{"rank", rank.rank.value},
                               {"coord", rank.coord.value},
                               {"ops", times_of(rank.ops)},
                               {"lanes", lanes_of(rank.lanes)}}));
    steps.push(Json::object({{"step", step.step}, {"ranks", std::move(ranks)}}));
  }
  return Json::object({{"schema", kTimelineSchema},
                       {"layout", timeline.layout},
                       {"program", timeline.program},
                       {"measured_with", to_json(timeline.print)},
                       {"steps", std::move(steps)}})
             .dump() +
         "\n";
}

Result<RunTimeline> read_timeline(std::string_view text, const std::string& name) {
  const Result<Json> json = parse_file(text, name, kTimelineSchema, kTimelineRemedy);
  if (!json.ok()) return json.error();
  JsonTrouble trouble;
  JsonFields fields(*json, "", trouble);
  RunTimeline timeline;
  timeline.layout = fields.text("layout");
  timeline.program = fields.text("program");
  timeline.print = read_fingerprint(fields.object("measured_with"));
  for (std::size_t s = 0; s < fields.list("steps").size(); ++s) {
    JsonFields step = fields.item("steps", s);
    timeline.steps.push_back({step.integer("step"), {}});
    for (std::size_t r = 0; r < step.list("ranks").size(); ++r)
      timeline.steps.back().ranks.push_back(read_rank(step.item("ranks", r)));
  }
  if (timeline.steps.empty()) fields.refuse("steps", "holds no step");
  if (trouble) return unreadable_member(name, *trouble);
  return timeline;
}

Result<void> check_timeline(const RunTimeline& timeline, const program::Program& program,
                            const Fingerprint& print, const std::string& layout,
                            const std::string& name) {
  const char* remedy = "give the run file and the --set that it was measured with";
  if (auto same = check_same(timeline.print, print, name, remedy); !same.ok()) return same;
  if (timeline.program != to_hex(program_hash(program)))
    return Error{
        Code::kConflict,
        join_parts(
            "`", name, "` was measured with another program: layout ", timeline.layout,
            ", asked for is ", layout,
            timeline.layout == layout ? ", of another number of layers or microbatches" : ""),
        remedy};
  for (const StepTimeline& step : timeline.steps)
    for (const RankTimeline& rank : step.ranks)
      if (rank.coord.value < 0 ||
          static_cast<std::size_t>(rank.coord.value) >= program.lists.size() ||
          rank.ops.size() != program.list(rank.coord).size())
        return Error{Code::kSyntax,
                     join_parts("`", name, "`: rank ", rank.rank.value, " has times of ",
                                rank.ops.size(), " ops, not those of its list"),
                     ""};
  return {};
}

}  // namespace lockstep::cost
