#include "cli/model/unit.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/spec/legal.h"

namespace lockstep::cli {
namespace {

using parts::Pass;
using parts::UnitPass;
using parts::UnitPasses;

// A part as it is printed.
struct Line {
  std::string kind, reads, makes, param;
  std::int64_t bytes = 0;  // of memory that its outputs take
  double flops = 0;
  std::int64_t sent = 0;
  bool repeats = false;
};

std::vector<Line> lines_of(const UnitPasses& unit, const Pass& pass) {
  std::set<parts::ValueId> taken;
  for (const parts::ValueId id : pass.before) taken.insert(pass.storage(id));
  const auto names = [&](const std::vector<parts::ValueId>& ids) {
    std::string all;
    for (const parts::ValueId id : ids) all += (all.empty() ? "" : ", ") + unit.values()[id].name;
    return all;
  };
  std::vector<Line> lines;
  for (const parts::Part& part : pass.parts) {
    Line line{std::string(to_text(part.kind)), names(part.in), names(part.out),
              std::string(part.param)};
    for (const parts::ValueId id : part.out)
      if (taken.insert(pass.storage(id)).second)
        line.bytes += unit.sizes().bytes(unit.values()[pass.storage(id)]);
    line.flops = flops_of(part, unit.values(), unit.sizes());
    if (row_of(part.kind).collective)
      line.sent = parts::sent({part.kind, "", collective_bytes(part, unit.values(), unit.sizes()),
                               part.group, group_size(part, unit.sizes())});
    line.repeats = part.repeats;
    lines.push_back(std::move(line));
  }
  return lines;
}

// The passes of a step without recomputation, W at once.
std::vector<UnitPass> passes_of(model::UnitKind kind) {
  if (kind == model::UnitKind::kHead) return {UnitPass::kBackward};
  return {UnitPass::kForward, UnitPass::kBackward};
}

void print_pass(std::ostream& out, const UnitPasses& unit, UnitPass name) {
  const std::vector<Line> lines = lines_of(unit, unit.at(name));
  if (lines.empty()) return;
  Rows rows = {
      {std::string(parts::kUnitPasses.name_of(name)), "", "parameter", "takes", "FLOP", "sends"}};
  const auto bytes = [](std::int64_t n) { return n == 0 ? "" : to_text(Bytes{n}); };
  for (const Line& line : lines)
    rows.push_back({(line.repeats ? "* " : "") + line.kind,
                    line.reads + (line.makes.empty() ? "" : " -> " + line.makes), line.param,
                    bytes(line.bytes), line.flops > 0 ? strf("%.3g", line.flops) : "",
                    bytes(line.sent)});
  print_table(out, rows, "lllrrr");
  if (lines.end() != std::ranges::find(lines, true, &Line::repeats))
    out << "* once for every " << with_commas(unit.sizes()[parts::Dim::kC]) << " tokens\n";
  out << "most above its start: " << to_text(Bytes{extra(unit.events(name))}) << "\n\n";
}

void print_held(std::ostream& out, const char* what, const std::vector<parts::Held>& held) {
  out << what << " " << to_text(Bytes{total(held)}) << ":";
  for (const parts::Held& one : held) out << " " << one.name;
  out << "\n";
}

Json unit_json(const UnitPasses& unit, const model::Model& model, model::UnitKind kind) {
  Json all = Json::object();
  for (const UnitPass name : passes_of(kind)) {
    Json list = Json::array();
    for (const Line& line : lines_of(unit, unit.at(name)))
      list.push(Json::object({{"kind", line.kind},
                              {"reads", line.reads},
                              {"makes", line.makes},
                              {"parameter", line.param},
                              {"bytes", line.bytes},
                              {"flops", line.flops},
                              {"sent_bytes", line.sent},
                              {"repeats", line.repeats}}));
    all.set(std::string(parts::kUnitPasses.name_of(name)), std::move(list));
  }
  return Json::object({{"schema", "lockstep.model-unit/1"},
                       {"name", model.config.name},
                       {"unit", to_text(kind)},
                       {"stash_bytes", total(unit.stash())},
                       {"weight_work_bytes", total(unit.work())},
                       {"passes", std::move(all)}});
}

Result<model::UnitSizes> sizes_of(const Args& args, const model::ModelConfig& config,
                                  std::int64_t seq) {
  LS_TRY(model::check_unit_bytes(config));
  const auto count = [&](const char* name) { return args.has(name) ? args.integer(name) : 1; };
  model::UnitSizes sizes{.batch = count("mbs")};
  sizes.dtype = args.has("dtype") ? *parse_dtype(args.text("dtype")) : DType::kBF16;
  sizes.tp = count("tp");
  sizes.cp = count("cp");
  sizes.ep = count("ep");
  sizes.seq = seq / sizes.cp;
  if (args.has("cp-comm-type")) sizes.context = *model::parse_cp_method(args.text("cp-comm-type"));
  sizes.sequence_parallel = args.flag("sp");
  spec::Layout layout{.degrees = {.tp = sizes.tp, .cp = sizes.cp, .dp = sizes.ep, .ep = sizes.ep},
                      .context = sizes.context,
                      .sp = sizes.sequence_parallel};
  const bool has_experts = config.moe.experts > 0;
  layout.degrees.etp = has_experts && !args.has("etp") ? sizes.tp : count("etp");
  if (has_experts) sizes.etp = layout.degrees.etp;
  const spec::Batch batch{
      .seq = seq, .global_batch = sizes.batch * sizes.ep, .microbatch = sizes.batch};
  const std::vector<Error> refused = spec::legal(config, layout, batch, sizes.dtype);
  if (!refused.empty()) return refused.front();
  return sizes;
}

// How a model is cut, and in which type, also says what data ranks keep.
bool goes_with_states(const Args& args, std::string_view name) {
  return args.has("dp") && (name == "tp" || name == "dtype");
}

}  // namespace

std::vector<Option> unit_options() {
  return {
      choice("unit", "UNIT", {"embed", "block", "head"},
             "Print the passes of a unit, part by part, as one rank runs them"),
      integer("tp", "N", "With --unit or --dp: tensor ranks (default 1)").between(1, 1e6),
      flag("sp", "With --unit: sequence parallelism"),
      integer("cp", "N", "With --unit: ranks that share a sequence (default 1)").between(1, 1e6),
      choice("cp-comm-type", "TYPE", {"ring", "gather", "ulysses"},
             "With --unit: how these meet (default ring)"),
      integer("ep", "N", "With --unit: ranks that share experts (default 1)").between(1, 1e6),
      integer("etp", "N", "With --unit: tensor ranks that share an expert (default all)")
          .between(1, 1e6),
      integer("mbs", "N", "With --unit: sequences in a microbatch (default 1)").between(1, 1e6),
      choice("dtype", "TYPE", {"bf16", "f32", "f64"},
             "With --unit or --dp: of weights (default bf16)")};
}

Result<void> check_unit_options(const Args& args) {
  for (const char* name : {"tp", "sp", "cp", "cp-comm-type", "ep", "etp", "mbs", "dtype"})
    if (args.has(name) && !args.has("unit") && !goes_with_states(args, name))
      return Error{Code::kBadOptionValue,
                   join_parts("--", name, " says how a unit runs, but no --unit is given"),
                   "add --unit block"};
  if (args.has("cp-comm-type") && !args.has("cp"))
    return Error{Code::kBadOptionValue,
                 "--cp-comm-type says how ranks that share a sequence meet, but there is no --cp",
                 "add --cp 2"};
  return {};
}

Result<ExitCode> print_unit(const Args& args, Output& output, const model::Model& model,
                            std::int64_t seq) {
  const std::string name = args.text("unit");
  const model::UnitSizes sizes = LS_TRY(sizes_of(args, model.config, seq));
  const auto unit = std::ranges::find_if(
      model.distinct, [&](const model::Unit& one) { return to_text(one.kind) == name; });
  LS_CHECK(unit != model.distinct.end(), "a model without ", name);
  const UnitPasses passes(model.config, *unit, sizes);
  if (output.json) return print_json(output, unit_json(passes, model, unit->kind));
  output.out << output.paint(style::kBold, model.config.name + " " + name) << ": "
             << to_text(sizes.dtype) << ", " << sizes.batch << " x " << with_commas(seq)
             << " tokens, tp" << sizes.tp << (sizes.sequence_parallel ? " sp" : "");
  if (sizes.cp > 1) output.out << " cp" << sizes.cp << " " << to_text(sizes.context);
  if (sizes.expert_ranks() < sizes.tp) output.out << " etp" << sizes.expert_ranks();
  if (sizes.ep > 1) output.out << " ep" << sizes.ep << ", experts met evenly";
  output.out << "\n\n";
  for (const UnitPass pass : passes_of(unit->kind)) print_pass(output.out, passes, pass);
  print_held(output.out, "kept for the backward pass", passes.stash());
  if (!passes.work().empty())
    print_held(output.out, "kept for weight gradients, if they are put off", passes.work());
  return ExitCode::kOk;
}

}  // namespace lockstep::cli
