#include "lockstep/draw/figure_of.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"

namespace lockstep::draw {
namespace {

using pipeline::PassKind;
using program::Op;
using program::OpKind;

std::string shape_text(const pipeline::Shape& shape) {
  std::string text = counted(shape.coords, "pipeline rank") + ", ";
  if (shape.chunks > 1) text += counted(shape.chunks, "virtual stage") + ", ";
  return text + counted(shape.microbatches, "microbatch");
}

// Levels in the order of time. Of what is held only between two ops that touch, a dip is nothing
// that happened, but a spike is: it may be the peak.
class Curve {
 public:
  void hold(Seconds time, double held) {
    if (!levels_.empty() && levels_.back().time == time) {
      const bool is_spike = levels_.back().held > held && levels_.back().held > before();
      if (!is_spike) levels_.pop_back();
    }
    if (levels_.empty() || levels_.back().held != held) levels_.push_back({time, held});
  }
  std::vector<Level> take() { return std::move(levels_); }

 private:
  double before() const { return levels_.size() < 2 ? -1 : levels_[levels_.size() - 2].held; }

  std::vector<Level> levels_;
};

// Of ops that have a colour of their own.
constexpr std::pair<OpKind, Ink> kInkOf[] = {
    {OpKind::kForward, Ink::kForward},         {OpKind::kRecompute, Ink::kRecompute},
    {OpKind::kBackward, Ink::kBackward},       {OpKind::kInputGrad, Ink::kInputGrad},
    {OpKind::kWeightGrad, Ink::kWeightGrad},   {OpKind::kSend, Ink::kTransfer},
    {OpKind::kPostRecv, Ink::kTransfer},       {OpKind::kGather, Ink::kGather},
    {OpKind::kAllGatherUpdated, Ink::kGather}, {OpKind::kReduce, Ink::kReduce},
    {OpKind::kReduceAcross, Ink::kReduce},     {OpKind::kReduceTied, Ink::kReduce},
    {OpKind::kReduceReplicated, Ink::kReduce}, {OpKind::kUpdate, Ink::kUpdate}};

Ink ink_of(OpKind kind) {
  const auto* row = std::ranges::find(kInkOf, kind, [](const auto& one) { return one.first; });
  return row == std::end(kInkOf) ? Ink::kOther : row->second;
}

Band band_of(const pipeline::Schedule& schedule, const sim::StageTimes& times, Coord coord) {
  const auto passes = schedule.passes(coord);
  const auto& timed = times.coords[coord.value];
  LS_CHECK(timed.size() == passes.size(), "times of ", timed.size(), " of ", passes.size(),
           " passes");
  Lane compute = {LaneKind::kCompute, "compute", {}};
  Curve memory;
  memory.hold({}, 0);
  int held = 0;
  const auto hold = [&](Seconds time) {
    memory.hold(time, static_cast<double>(held) / schedule.shape().chunks);
  };
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const pipeline::Pass& pass = passes[i];
    if (pass.kind == PassKind::kForward) ++held;
    hold(timed[i].start);
    if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kWeightGrad) --held;
    hold(timed[i].end);
    if (timed[i].start == timed[i].end) continue;
    compute.bars.push_back({.start = timed[i].start,
                            .end = timed[i].end,
                            .ink = ink_of(program::op_kind(pass.kind)),
                            .microbatch = pass.microbatch.value,
                            .stage = pass.stage.value,
                            .chunk = pass.stage.value / schedule.shape().coords,
                            .name = to_text(pass)});
  }
  return {coord, {std::move(compute)}, memory.take()};
}

// The bars and levels of one program's pipeline ranks.
class ProgramBands {
 public:
  // A row of bands for each pipeline rank, or for each rank that ran a pipeline rank's list.
  using Row = program::RankTimeline;

  ProgramBands(const program::Program& program, std::vector<Row> rows)
      : program_(program), rows_(std::move(rows)) {
    for (const Row& row : rows_)
      for (const program::TimedOp& timed : row.ops)
        if (const OpKind kind = op_of(row, timed).kind; is_blocking_collective(kind))
          last_arrival_[kind] = std::max(last_arrival_[kind], timed.start);
  }

  static std::vector<Row> rows_of(const program::Program& program,
                                  const sim::Simulation& simulation) {
    LS_CHECK(simulation.coords.size() == program.lists.size() &&
                 simulation.lanes.size() == program.lists.size(),
             "times of ", simulation.coords.size(), " of ", program.lists.size(),
             " pipeline ranks");
    std::vector<Row> rows;
    for (std::size_t c = 0; c < program.lists.size(); ++c)
      rows.push_back(
          {{},
           {static_cast<int>(c)},
           simulation.coords[c],
           simulation.lanes[c],
           simulation.parts.empty() ? std::vector<program::TimedPart>() : simulation.parts[c]});
    return rows;
  }

  // Memory of the walk is divided by `unit`.
  Band band(std::size_t row, const program::ProgramBytes& bytes, double unit) const {
    Band made = {rows_[row].coord, lanes(rows_[row]), memory(rows_[row], bytes, unit)};
    for (const program::TimedPart& timed : rows_[row].parts)
      if (!timed.is_beside && timed.start < timed.end) made.parts.push_back(bar(rows_[row], timed));
    return made;
  }

 private:
  using LaneKey = std::pair<int, int>;  // orders lanes: kind, then group or peer and direction

  const Op& op_of(const Row& row, const program::TimedOp& timed) const {
    return program_.list(row.coord)[timed.op];
  }
  const program::Transfer& transfer_of(const Op& op) const {
    return program_.transfers[op.transfer];
  }

  std::vector<Lane> lanes(const Row& row) const {
    Lane compute = {LaneKind::kCompute, "compute", {}};
    for (program::TimedOp timed : row.ops) {
      const OpKind kind = op_of(row, timed).kind;
      if (kind == OpKind::kWait) continue;
      // A pipeline rank arrives early and stands still until the last one has come.
      if (is_blocking_collective(kind)) timed.start = last_arrival_.at(kind);
      if (timed.start < timed.end) compute.bars.push_back(bar(row, timed));
    }
    std::map<LaneKey, Lane> others;
    for (const program::TimedOp& timed : row.lanes)
      if (timed.start < timed.end) {
        const Op& op = op_of(row, timed);
        Lane& lane = others.try_emplace(key(op), empty_lane(op)).first->second;
        lane.bars.push_back(bar(row, timed));
      }
    const Op tensor = {.kind = OpKind::kReduceReplicated, .group = program::CommGroup::kTensor};
    for (const program::TimedPart& timed : row.parts)
      if (timed.is_beside && timed.start < timed.end) {
        Lane& lane = others.try_emplace(key(tensor), empty_lane(tensor)).first->second;
        lane.bars.push_back(bar(row, timed));
      }
    std::vector<Lane> all = {std::move(compute)};
    for (auto& [_, lane] : others) {
      std::ranges::stable_sort(lane.bars, {}, &Bar::start);
      all.push_back(std::move(lane));
    }
    return all;
  }

  LaneKey key(const Op& op) const {
    if (op.transfer < 0) return {0, static_cast<int>(op.group)};
    const bool is_send = op.kind == OpKind::kSend;
    return {is_send ? 1 : 2, is_send ? transfer_of(op).to.value : transfer_of(op).from.value};
  }

  Lane empty_lane(const Op& op) const {
    if (op.transfer < 0) return {LaneKind::kCollective, std::string(to_text(op.group)), {}};
    const program::Transfer& transfer = transfer_of(op);
    return {LaneKind::kTransfer,
            op.kind == OpKind::kSend ? "send to " + std::to_string(transfer.to.value)
                                     : "receive from " + std::to_string(transfer.from.value),
            {}};
  }

  Bar bar(const Row& row, const program::TimedOp& timed) const {
    const program::StepShape& step = program_.step;
    const Op& op = op_of(row, timed);
    const int unit = step.unit_of(op.transfer >= 0 ? transfer_of(op).unit : op.unit);
    const int stage = unit >= 0 ? step.stage_of(unit).value : -1;
    return {.start = timed.start,
            .end = timed.end,
            .ink = ink_of(op.kind),
            .microbatch = op.transfer >= 0 ? transfer_of(op).microbatch : op.microbatch,
            .stage = stage,
            .unit = unit,
            .chunk = stage >= 0 ? stage / step.shape.coords : 0,
            .name = op_token(step, op)};
  }

  // Coloured as what it is a part of; a collective as those of the program.
  Bar bar(const Row& row, const program::TimedPart& timed) const {
    Bar made = bar(row, {timed.op, timed.start, timed.end});
    made.name =
        timed.param.empty() ? std::string(timed.kind) : join_parts(timed.kind, " ", timed.param);
    if (timed.is_beside) made.ink = timed.kind == "all_gather" ? Ink::kGather : Ink::kReduce;
    return made;
  }

  std::vector<Level> memory(const Row& row, const program::ProgramBytes& bytes, double unit) const {
    const program::MemoryWalk walked = walk(program_, row.coord, bytes);
    Curve curve;
    auto before = static_cast<double>(walked.before);
    curve.hold({}, before / unit);
    for (const program::TimedOp& timed : row.ops) {
      const auto after = static_cast<double>(walked.live[timed.op]);
      const double during =
          timed.op == walked.peak_op ? static_cast<double>(walked.peak) : std::max(before, after);
      curve.hold(timed.start, during / unit);
      curve.hold(timed.end, after / unit);
      before = after;
    }
    return curve.take();
  }

  const program::Program& program_;
  const std::vector<Row> rows_;
  std::map<OpKind, Seconds> last_arrival_;  // when the last pipeline rank came
};

// Measured transfers between two ranks may overlap; a lane shows the earlier one whole.
void part(std::vector<Bar>& bars) {
  Seconds free;
  for (Bar& bar : bars) {
    bar.start = std::max(bar.start, free);
    free = std::max(free, bar.end);
  }
  std::erase_if(bars, [](const Bar& bar) { return !(bar.start < bar.end); });
}

Figure empty_figure(const program::Program& program, Seconds makespan, const char* unit) {
  const program::StepShape& step = program.step;
  return {.shape = join_parts(shape_text(step.shape), ", ", counted(step.units(), "unit"),
                              ", ZeRO-", step.zero),
          .memory_unit = unit,
          .makespan = makespan};
}

}  // namespace

Figure figure_of(const pipeline::Schedule& schedule, const sim::StageTimes& times) {
  LS_CHECK(std::ssize(times.coords) == schedule.shape().coords, "times of ", times.coords.size(),
           " of ", schedule.shape().coords, " pipeline ranks");
  Figure figure = {.shape = shape_text(schedule.shape()), .makespan = times.makespan};
  for (int c = 0; c < schedule.shape().coords; ++c)
    figure.bands.push_back(band_of(schedule, times, {c}));
  return figure;
}

Figure figure_of(const program::Program& program, const sim::Simulation& simulation) {
  const program::StepShape& step = program.step;
  const std::size_t coords = program.lists.size();
  // Blocks alone, so that the peak is that of the schedule wherever embedding and head are.
  program::ProgramBytes counts;
  counts.units.resize(step.units(), {.stash = 1, .weight_work = 1});
  counts.units.front() = counts.units.back() = {};
  counts.units.resize(step.num_segments());
  counts.tokens.resize(coords);
  counts.constants.resize(coords);
  const bool recomputes = std::ranges::count(step.recompute, true) > 0;
  Figure figure =
      empty_figure(program, simulation.makespan,
                   recomputes ? "microbatches without inputs of recomputed units" : "microbatches");
  const ProgramBands bands(program, ProgramBands::rows_of(program, simulation));
  for (int c = 0; c < static_cast<int>(coords); ++c) {
    int kept = 0;
    for (int unit = 1; unit < step.head(); ++unit) kept += step.holds({c}, unit) ? 1 : 0;
    figure.bands.push_back(bands.band(c, counts, std::max(1, kept)));
  }
  return figure;
}

Figure figure_of(const program::Program& program, const sim::Simulation& simulation,
                 const program::ProgramBytes& bytes) {
  Figure figure = empty_figure(program, simulation.makespan, "B");
  const ProgramBands bands(program, ProgramBands::rows_of(program, simulation));
  for (std::size_t c = 0; c < program.lists.size(); ++c)
    figure.bands.push_back(bands.band(c, bytes, 1));
  return figure;
}

Figure figure_of(const program::Program& program, const program::StepTimeline& measured,
                 const program::ProgramBytes& bytes) {
  Figure figure = empty_figure(program, measured.makespan(), "B");
  const ProgramBands bands(program, measured.ranks);
  for (std::size_t r = 0; r < measured.ranks.size(); ++r) {
    figure.bands.push_back(bands.band(r, bytes, 1));
    figure.bands.back().name = "rank " + std::to_string(measured.ranks[r].rank.value);
    for (Lane& lane : figure.bands.back().lanes) part(lane.bars);
    part(figure.bands.back().parts);
  }
  return figure;
}

}  // namespace lockstep::draw
