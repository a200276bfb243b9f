#include "lockstep/cost/measured/calibration_fit.h"

#include <algorithm>
#include <map>
#include <string>

#include "lockstep/cost/op_messages.h"
#include "lockstep/program/effects.h"

namespace lockstep::cost {
namespace {

using program::Op;
using program::OpKind;
using program::RankTimeline;
using program::TimedOp;

using Samples = std::vector<double>;
using SizedSamples = std::map<double, Samples>;  // by size

double quantile(Samples& samples, std::size_t quarters) {
  const std::size_t at = (samples.size() - 1) * quarters / 4;
  std::ranges::nth_element(samples, samples.begin() + static_cast<std::ptrdiff_t>(at));
  return samples[at];
}

PassTime summed_up(Samples samples) {
  if (samples.empty()) return {};
  const auto count = static_cast<std::int64_t>(samples.size());
  const double low = quantile(samples, 1), high = quantile(samples, 3);
  const double middle = quantile(samples, 2);
  return {{middle}, middle > 0 ? (high - low) / 2 / middle : 0, count};
}

Line line_of(SizedSamples samples) {
  std::vector<std::pair<double, double>> points;
  for (auto& [size, times] : samples) points.emplace_back(size, quantile(times, 2));
  return fit_line(points);
}

// Mean of one step.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
};

// When the last rank came, and how much the fullest had to add up before.
struct Meeting {
  Seconds begin;
  double elements = 0;
};

class Fit {
 public:
  explicit Fit(const Calibration& known) : known_(known) {}

  void add(const Probe& probe) {
    for (const program::StepTimeline& step : probe.steps) {
      Meeting norm;
      for (const RankTimeline& rank : step.ranks) {
        const OpMessages messages(probe.program, probe.model, probe.sizes, probe.mesh, rank.rank);
        norm.elements = std::max(norm.elements, messages.owned_elements());
        for (const TimedOp& timed : rank.ops)
          if (op_of(probe, rank, timed).kind == OpKind::kNorm)
            norm.begin = std::max(norm.begin, timed.start);
      }
      for (const RankTimeline& rank : step.ranks) add(probe, rank, norm);
    }
  }

  void write(Calibration& into) {
    for (const auto& [name, samples] : disturbed_) into.passes[name] = summed_up(samples);
    for (const auto& [name, samples] : clear_) into.passes[name] = summed_up(samples);
    into.load = summed_up(load_);
    into.count = line_of(count_);
    into.norm = line_of(norm_);
    into.update = line_of(update_);
    into.accumulate = line_of(accumulate_);
  }

 private:
  static const Op& op_of(const Probe& probe, const RankTimeline& rank, const TimedOp& timed) {
    return probe.program.list(rank.coord)[static_cast<std::size_t>(timed.op)];
  }

  void add(const Probe& probe, const RankTimeline& rank, const Meeting& norm) {
    const OpMessages messages(probe.program, probe.model, probe.sizes, probe.mesh, rank.rank);
    std::map<std::string, Mean> clear, disturbed;
    Mean load;
    int in_flight = 0;
    for (const TimedOp& timed : rank.ops) {
      const Op& op = op_of(probe, rank, timed);
      const double length = (timed.end - timed.start).value;
      if (is_async(op.kind)) ++in_flight;
      if (op.kind == OpKind::kWait) --in_flight;
      const std::string pass =
          op.unit < 0 ? "" : pass_name(probe.program.step, probe.model.unit(op.unit), op);
      if (!pass.empty())
        (in_flight == 0 ? clear : disturbed)[pass].add(length);
      else if (op.kind == OpKind::kLoad)
        load.add(length);
      else
        add_sized(probe, rank, messages, timed, norm);
    }
    if (load.count > 0) load_.push_back(load.sum / static_cast<double>(load.count));
    for (const auto& [means, into] : {std::pair(&clear, &clear_), {&disturbed, &disturbed_}})
      for (const auto& [name, mean] : *means)
        (*into)[name].push_back(mean.sum / static_cast<double>(mean.count));
  }

  void add_sized(const Probe& probe, const RankTimeline& rank, const OpMessages& messages,
                 const TimedOp& timed, const Meeting& norm) {
    const Op& op = op_of(probe, rank, timed);
    const double length = (timed.end - timed.start).value;
    if (op.kind == OpKind::kCount)
      count_[probe.program.step.shape.microbatches].push_back(length - meeting(messages.of(op)));
    if (op.kind == OpKind::kUpdate)
      update_[static_cast<double>(messages.states(op.unit).owned)].push_back(length);
    if (op.kind == OpKind::kNorm)
      norm_[norm.elements].push_back((timed.end - norm.begin).value - meeting(messages.of(op)));
    if (op.kind == OpKind::kWait) add_wait(probe, rank, messages, timed);
  }

  // What a Wait adds to a sum, after its op was complete and taken over.
  void add_wait(const Probe& probe, const RankTimeline& rank, const OpMessages& messages,
                const TimedOp& timed) {
    const Op& op = op_of(probe, rank, timed);
    const Op& target = probe.program.list(rank.coord)[static_cast<std::size_t>(op.target)];
    const program::Effects end = effects(probe.program, rank.coord, op);
    if (end.reads.empty() || end.mutates.empty() || target.unit < 0) return;
    const auto lane = std::ranges::find(rank.lanes, op.target, &TimedOp::op);
    if (lane == rank.lanes.end()) return;
    double left = (timed.end - std::max(timed.start, lane->end)).value;
    for (const Message& message : messages.of(target))
      if (const CollectiveTime* known = known_.find(message.kind, message.members))
        left -= known->finish.at(static_cast<double>(message.bytes)).value;
    accumulate_[static_cast<double>(messages.states(target.unit).grad_shard)].push_back(left);
  }

  double meeting(const std::vector<Message>& messages) const {
    double sum = 0;
    for (const Message& message : messages)
      if (const CollectiveTime* known = known_.find(message.kind, message.members))
        sum += known->total(static_cast<double>(message.bytes)).value;
    return sum;
  }

  const Calibration& known_;
  std::map<std::string, Samples> clear_, disturbed_;  // passes
  Samples load_;
  SizedSamples count_, norm_, update_, accumulate_;
};

}  // namespace

void fit_ops(std::span<const Probe> probes, Calibration& into) {
  Fit fit(into);
  for (const Probe& probe : probes) fit.add(probe);
  fit.write(into);
}

}  // namespace lockstep::cost
