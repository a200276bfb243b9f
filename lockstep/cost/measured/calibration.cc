#include "lockstep/cost/measured/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/check.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/cost/measured/schema_file.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/program/op_table.h"

namespace lockstep::cost {
namespace {

constexpr std::string_view kCalibrationSchema = "lockstep.calibration/2";
constexpr const char* kCalibrationRemedy = "make one with lockstep calibrate RUN --out FILE";

constexpr std::array kKinds = {comm::OpKind::kAllGather, comm::OpKind::kReduceScatter,
                               comm::OpKind::kAllReduce, comm::OpKind::kSend, comm::OpKind::kRecv};

Json json_of(const Line& line) {
  return Json::object({{"alpha", line.alpha},
                       {"beta", line.beta},
                       {"residual", line.residual},
                       {"points", line.points}});
}

Line read_line(JsonFields fields) {
  return {fields.real("alpha"), fields.real("beta"), fields.real("residual"),
          fields.integer("points")};
}

Json json_of(const PassTime& pass) {
  return Json::object(
      {{"seconds", pass.time.value}, {"spread", pass.spread}, {"samples", pass.samples}});
}

PassTime read_pass(JsonFields fields) {
  return {{fields.real("seconds")}, fields.real("spread"), fields.integer("samples")};
}

Json json_of(const std::vector<sim::PartCost>& costs) {
  Json all = Json::array();
  for (const sim::PartCost& cost : costs)
    all.push(Json::object({{"list", cost.list.value}, {"lane", cost.lane.value}}));
  return all;
}

std::vector<sim::PartCost> read_parts(JsonFields& passes, const std::string& pass) {
  std::vector<sim::PartCost> costs;
  for (std::size_t i = 0; i < passes.list(pass).size(); ++i) {
    JsonFields part = passes.item(pass, i);
    costs.push_back({{part.real("list")}, {part.real("lane")}});
  }
  return costs;
}

CollectiveTime read_collective(JsonFields fields) {
  CollectiveTime read;
  const std::string name = fields.text("kind");
  const auto kind = std::ranges::find(kKinds, name, [](comm::OpKind k) { return to_text(k); });
  if (kind == kKinds.end())
    fields.refuse("kind", "is no collective that is priced: " + name);
  else
    read.kind = *kind;
  read.members = fields.integer("members");
  read.issue = read_line(fields.object("issue"));
  read.lane = read_line(fields.object("lane"));
  read.finish = read_line(fields.object("finish"));
  return read;
}

}  // namespace

Line fit_line(std::span<const std::pair<double, double>> points) {
  if (points.empty()) return {};
  // Sums of w, wx, wxx, wy, wxy with w = 1 / y^2.
  double w0 = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const auto& [x, y] : points) {
    const double w = y > 0 ? 1 / (y * y) : 1;
    w0 += w, wx += w * x, wxx += w * x * x;
    wy += w * std::max(y, 0.0), wxy += w * x * std::max(y, 0.0);
  }
  Line line;
  const double det = w0 * wxx - wx * wx;
  // Points of one size say nothing about a slope apart from the whole.
  const bool is_flat = det <= 1e-12 * w0 * wxx;
  line.beta = is_flat ? (wxx > 0 ? wxy / wxx : 0) : (w0 * wxy - wx * wy) / det;
  line.alpha = is_flat && wxx > 0 ? 0 : (wy - line.beta * wx) / w0;
  if (line.beta < 0) line = {wy / w0, 0, 0, 0};
  if (line.alpha < 0) line = {0, wxx > 0 ? wxy / wxx : 0, 0, 0};
  line.points = static_cast<std::int64_t>(points.size());
  for (const auto& [x, y] : points)
    if (y > 0) line.residual = std::max(line.residual, std::abs(line.at(x).value / y - 1));
  return line;
}

const CollectiveTime* Calibration::find(comm::OpKind kind, std::int64_t members) const {
  for (const CollectiveTime& one : collectives)
    if (one.kind == kind && one.members == members) return &one;
  return nullptr;
}

std::string pass_name(const program::StepShape& step, const model::Unit& unit,
                      const program::Op& op) {
  if (!parts::pass_of(step, unit, op)) return "";
  char letter = op_row(op.kind).token.front();
  const bool is_kept = unit.kind != model::UnitKind::kBlock || !step.recomputes(op.unit);
  if (letter == 'F' && !is_kept) letter = 'C';
  std::string name = std::string(to_text(unit.kind)) + "." + letter;
  const bool is_first = step.period == program::Period::kMicrobatch || op.microbatch == 0;
  return (letter == 'B' || letter == 'W') && is_first ? name + ".first" : name;
}

std::string write_calibration(const Calibration& calibration) {
  Json passes = Json::object(), parts = Json::object(), collectives = Json::array();
  for (const auto& [name, pass] : calibration.passes) passes.set(name, json_of(pass));
  for (const auto& [name, costs] : calibration.parts) parts.set(name, json_of(costs));
  for (const CollectiveTime& one : calibration.collectives)
    collectives.push(Json::object({{"kind", to_text(one.kind)},
                                   {"members", one.members},
                                   {"issue", json_of(one.issue)},
                                   {"lane", json_of(one.lane)},
                                   {"finish", json_of(one.finish)}}));
  return Json::object({{"schema", kCalibrationSchema},
                       {"date", calibration.date},
                       {"lockstep", calibration.lockstep},
                       {"torch", calibration.torch},
                       {"cpu", calibration.cpu},
                       {"ranks", calibration.ranks},
                       {"ranks_are", calibration.ranks_are},
                       {"measured_with", to_json(calibration.print)},
                       {"passes", std::move(passes)},
                       {"parts", std::move(parts)},
                       {"load", json_of(calibration.load)},
                       {"count_per_microbatch", json_of(calibration.count)},
                       {"norm_per_element", json_of(calibration.norm)},
                       {"update_per_element", json_of(calibration.update)},
                       {"accumulate_per_byte", json_of(calibration.accumulate)},
                       {"collectives_per_byte", std::move(collectives)},
                       {"slowdown", calibration.slowdown}})
             .dump(2) +
         "\n";
}

Result<Calibration> read_calibration(std::string_view text, const std::string& name) {
  const Result<Json> json = parse_file(text, name, kCalibrationSchema, kCalibrationRemedy);
  if (!json.ok()) return json.error();
  JsonTrouble trouble;
  JsonFields fields(*json, "", trouble);
  Calibration read;
  read.date = fields.text("date");
  read.lockstep = fields.text("lockstep");
  read.torch = fields.text("torch");
  read.cpu = fields.text("cpu");
  read.ranks = fields.integer("ranks");
  read.ranks_are = fields.text("ranks_are");
  read.print = read_fingerprint(fields.object("measured_with"));
  JsonFields passes = fields.object("passes");
  for (const Json::Member& member : passes.json().members())
    read.passes[member.key] = read_pass(passes.object(member.key));
  JsonFields parts = fields.object("parts");
  for (const Json::Member& member : parts.json().members())
    read.parts[member.key] = read_parts(parts, member.key);
  read.load = read_pass(fields.object("load"));
  read.count = read_line(fields.object("count_per_microbatch"));
  read.norm = read_line(fields.object("norm_per_element"));
  read.update = read_line(fields.object("update_per_element"));
  read.accumulate = read_line(fields.object("accumulate_per_byte"));
  for (std::size_t i = 0; i < fields.list("collectives_per_byte").size(); ++i)
    read.collectives.push_back(read_collective(fields.item("collectives_per_byte", i)));
  read.slowdown = fields.real("slowdown");
  if (read.slowdown < 1) fields.refuse("slowdown", "is below 1");
  if (trouble) return unreadable_member(name, *trouble);
  return read;
}

}  // namespace lockstep::cost
