#include "lockstep/train/step_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/program/text.h"
#include "lockstep/train/predictions.h"

namespace lockstep::train {
namespace {

using program::RankTimeline;
using program::Timeline;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Clocks of one machine agree; beyond this two ranks are on different ones.
constexpr double kMostSkew = 600;

// One rank's step as numbers, in a row that is as long on every rank: begin, then start and end of
// every op, then the same on its lane.
class StepRow {
 public:
  explicit StepRow(const program::Program& program) {
    for (const auto& list : program.lists) most_ops_ = std::max(most_ops_, list.size());
  }
  std::size_t size() const { return 1 + 4 * most_ops_; }

  void write(SteadyPoint begun, const Timeline& ops, const Timeline& lanes, double* row) const {
    std::fill_n(row, size(), kUnknown);
    row[0] = std::chrono::duration<double>(begun.time_since_epoch()).count();
    for (const auto& [timeline, at] : {std::pair(&ops, row + 1), {&lanes, row + 1 + 2 * most_ops_}})
      for (const program::TimedOp& op : *timeline) {
        at[2 * op.op] = op.start.value;
        at[2 * op.op + 1] = op.end.value;
      }
  }

  // Times count from `origin`.
  void read(const double* row, double origin, std::size_t num_ops, RankTimeline& into) const {
    const double late = row[0] - origin;
    for (const auto& [timeline, at] :
         {std::pair(&into.ops, row + 1), {&into.lanes, row + 1 + 2 * most_ops_}})
      for (std::size_t i = 0; i < num_ops; ++i)
        if (!std::isnan(at[2 * i]))
          timeline->push_back({static_cast<std::int32_t>(i),
                               {std::max(0.0, at[2 * i] + late)},
                               {std::max(0.0, at[2 * i + 1] + late)}});
  }

 private:
  std::size_t most_ops_ = 0;
};

}  // namespace

void StepRecord::add(std::int64_t step, const Session& session) {
  if (kept_.size() == most_) kept_.erase(kept_.begin());
  kept_.push_back({step, session.begun(), session.timeline(), session.lanes()});
}

cost::RunTimeline StepRecord::collect(const Job& job, comm::World& world, const std::string& label,
                                      Deadline deadline) const {
  const StepRow layout(job.program);
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto group = world.connect_all("record " + label, "record", deadline);
  std::vector<double> own(layout.size()), rows(layout.size() * ranks);
  cost::RunTimeline result;
  result.print = cost::fingerprint(job.model.config, sizes_of(job, Rank{0}).unit);
  result.layout = to_text(job.spec.layout);
  result.program = to_hex(program_hash(job.program));
  for (const Kept& kept : kept_) {
    layout.write(kept.begun, kept.ops, kept.lanes, own.data());
    group
        ->all_gather({own.data(), std::ssize(own), DType::kF64, {}},
                     {rows.data(), std::ssize(rows), DType::kF64, {}}, deadline)
        .wait();
    double first = rows[0], last = rows[0];
    for (std::size_t r = 0; r < ranks; ++r) {
      first = std::min(first, rows[r * own.size()]);
      last = std::max(last, rows[r * own.size()]);
    }
    program::StepTimeline step{kept.step, {}};
    for (std::size_t r = 0; r < ranks; ++r) {
      const double* row = rows.data() + r * own.size();
      const Rank number = {static_cast<int>(r)};
      RankTimeline rank{number, job.place(number).coord, {}, {}};
      layout.read(row, last - first > kMostSkew ? row[0] : first,
                  job.program.list(rank.coord).size(), rank);
      step.ranks.push_back(std::move(rank));
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace lockstep::train
