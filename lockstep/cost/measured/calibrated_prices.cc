#include "lockstep/cost/measured/calibrated_prices.h"

#include <algorithm>

#include "lockstep/parts/op_pass.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"

namespace lockstep::cost {

using program::Op;
using program::OpKind;

CalibratedPrices::CalibratedPrices(const Calibration& calibration, const program::Program& program,
                                   const model::Model& model, const StepSizes& sizes,
                                   const mesh::Mesh& mesh)
    : calibration_(calibration), program_(program), model_(model), sizes_(sizes) {
  for (int c = 0; c < program.step.shape.coords; ++c) {
    mesh::Coords coords;
    coords[mesh::Axis::kPipeline] = {c};
    by_coord_.emplace_back(program, model, sizes, mesh, mesh.rank(coords));
    norm_elements_ = std::max(norm_elements_, by_coord_.back().owned_elements());
  }
}

Result<CalibratedPrices> CalibratedPrices::create(const Calibration& calibration,
                                                  const program::Program& program,
                                                  const model::Model& model, const StepSizes& sizes,
                                                  const mesh::Mesh& mesh, const std::string& name) {
  CalibratedPrices prices(calibration, program, model, sizes, mesh);
  for (int c = 0; c < program.step.shape.coords; ++c)
    for (const Op& op : program.list({c}))
      if (const std::string what = prices.unknown({c}, op); !what.empty())
        return Error{Code::kConflict,
                     join_parts("`", name, "` does not know ", what, ", which ",
                                op_text(program, {c}, op), " needs"),
                     "make another with lockstep calibrate, of a run with these degrees"};
  LS_TRY(prices.time_passes(name));
  return prices;
}

Result<void> CalibratedPrices::time_passes(const std::string& name) {
  std::map<int, parts::UnitPasses> units;  // by distinct unit
  for (int c = 0; c < program_.step.shape.coords; ++c)
    for (const Op& op : program_.list({c})) {
      if (op.unit < 0) continue;
      const model::Unit& unit = model_.unit(op.unit);
      const std::string pass = pass_name(program_.step, unit, op);
      if (pass.empty() || passes_.contains(pass)) continue;
      PricedPass& priced = passes_[pass];
      priced.time = calibration_.passes.at(pass).time;
      const auto costs = calibration_.parts.find(pass);
      if (costs == calibration_.parts.end() && sizes_.unit.tp * sizes_.unit.cp == 1) continue;
      const int kind = model_.order[static_cast<std::size_t>(op.unit)];
      const parts::UnitPasses& lists =
          units.try_emplace(kind, model_.config, unit, sizes_.unit).first->second;
      const parts::Pass& list = lists.at(*parts::pass_of(program_.step, unit, op));
      if (costs == calibration_.parts.end() ||
          costs->second.size() != sim::count_parts(list, lists.sizes()))
        return Error{Code::kConflict, join_parts("`", name, "` does not know the parts of ", pass),
                     "make another with lockstep calibrate"};
      const double slowdown = calibration_.slowdown;
      priced.parts = simulate_pass(list, lists.sizes(), costs->second, {slowdown, slowdown});
      for (const sim::PartCost& cost : costs->second) priced.time -= cost.list + cost.lane;
      priced.time = std::max(priced.time + priced.parts.length, Seconds{});
    }
  return {};
}

std::string CalibratedPrices::unknown(Coord coord, const Op& op) const {
  if (op.unit >= 0)
    if (const std::string pass = pass_name(program_.step, model_.unit(op.unit), op);
        !pass.empty() && !calibration_.passes.contains(pass))
      return join_parts("the pass ", pass);
  for (const Message& message : messages(coord, op))
    if (calibration_.find(message.kind, message.members) == nullptr)
      return join_parts(to_text(message.kind), " of ", message.members, " ranks");
  return "";
}

// A group of one has nothing to do.
std::vector<Message> CalibratedPrices::messages(Coord coord, const Op& op) const {
  std::vector<Message> all = by_coord_[static_cast<std::size_t>(coord.value)].of(op);
  std::erase_if(all, [](const Message& message) { return message.members == 1; });
  // A transfer is between two, whatever the length of the pipeline.
  for (Message& message : all)
    if (op.transfer >= 0) message.members = 2;
  return all;
}

Seconds CalibratedPrices::meeting(Coord coord, const Op& op) const {
  Seconds sum;
  for (const Message& message : messages(coord, op))
    sum +=
        calibration_.find(message.kind, message.members)->total(static_cast<double>(message.bytes));
  return sum;
}

// Embedding and head on one coordinate: one gradient is added to the other and copied back.
Seconds CalibratedPrices::tied_in_place(Coord coord) const {
  const StateBytes states = by_coord_[static_cast<std::size_t>(coord.value)].states(0);
  return calibration_.accumulate.at(static_cast<double>(states.owned * sizes_.unit.wide())) * 2;
}

Seconds CalibratedPrices::time(Coord coord, const Op& op) const {
  const StateBytes states = op.unit >= 0
                                ? by_coord_[static_cast<std::size_t>(coord.value)].states(op.unit)
                                : StateBytes{};
  switch (op.kind) {
    case OpKind::kLoad:
      return calibration_.load.time;
    case OpKind::kCount:
      return calibration_.count.at(program_.step.shape.microbatches) + meeting(coord, op);
    case OpKind::kForward:
    case OpKind::kRecompute:
    case OpKind::kBackward:
    case OpKind::kInputGrad:
    case OpKind::kWeightGrad:
      return passes_.at(pass_name(program_.step, model_.unit(op.unit), op)).time;
    case OpKind::kUpdate:
      return calibration_.update.at(static_cast<double>(states.owned));
    case OpKind::kNorm:
      return calibration_.norm.at(norm_elements_) + meeting(coord, op);
    case OpKind::kReduceTied:
      return program_.step.coord_of(0) == program_.step.coord_of(program_.step.head())
                 ? tied_in_place(coord)
                 : meeting(coord, op);
    default:
      break;
  }
  Seconds sum;
  for (const Message& message : messages(coord, op))
    sum += calibration_.find(message.kind, message.members)
               ->lane.at(static_cast<double>(message.bytes));
  return sum;
}

Seconds CalibratedPrices::host(Coord coord, const Op& op) const {
  const bool is_wait = op.kind == OpKind::kWait;
  const Op& issued = is_wait ? program_.list(coord)[static_cast<std::size_t>(op.target)] : op;
  Seconds sum;
  for (const Message& message : messages(coord, issued)) {
    const CollectiveTime& known = *calibration_.find(message.kind, message.members);
    sum += (is_wait ? known.finish : known.issue).at(static_cast<double>(message.bytes));
  }
  if (!is_wait || issued.unit < 0) return sum;
  const program::Effects end = effects(program_, coord, op);
  if (end.reads.empty() || end.mutates.empty()) return sum;
  const StateBytes states = by_coord_[static_cast<std::size_t>(coord.value)].states(issued.unit);
  return sum + calibration_.accumulate.at(static_cast<double>(states.grad_shard));
}

std::vector<program::TimedPart> CalibratedPrices::parts(Coord coord,
                                                        const program::Timeline& list) const {
  std::vector<program::TimedPart> all;
  for (const program::TimedOp& timed : list) {
    const Op& op = program_.list(coord)[static_cast<std::size_t>(timed.op)];
    const auto pass = op.unit < 0
                          ? passes_.end()
                          : passes_.find(pass_name(program_.step, model_.unit(op.unit), op));
    if (pass == passes_.end() || !(pass->second.parts.length > Seconds{})) continue;
    const double factor = (timed.end - timed.start).value / pass->second.parts.length.value;
    for (program::TimedPart part : pass->second.parts.parts) {
      part.op = timed.op;
      part.start = timed.start + part.start * factor;
      part.end = timed.start + part.end * factor;
      all.push_back(part);
    }
  }
  return all;
}

}  // namespace lockstep::cost
