// The answer of `lockstep plan` for machines, and as a run file.
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/plan/page.h"
#include "cli/plan/report.h"
#include "cli/plan/targets.h"
#include "cli/run_file.h"
#include "lockstep/base/check.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/user_model.h"
#include "lockstep/planner/explain.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

Json time_json(const PlanRow& row) {
  const cost::StepTime& t = row.finalist.priced.price.time;
  const planner::StepQuantiles quantiles = row.quantiles();
  const std::optional<double>& units = row.finalist.by_units;
  Json json = Json::object({{"total", row.seconds()},
                            {"p50", quantiles.p50},
                            {"p95", quantiles.p95},
                            {"factor_half", row.doubt().half},
                            {"factor_nine_of_ten", row.doubt().most},
                            {"simulated", row.finalist.simulated},
                            {"by_units", units ? Json(*units) : Json()},
                            {"closed_form", row.finalist.closed_form}});
  for (const cost::StepTerm& term : cost::kStepTerms) json.set(term.name, t.*term.seconds);
  if (row.observed) json.set("observed_factor", row.observed->p50());
  return json;
}

Json memory_json(const PlanRow& row, const cost::Memory& m) {
  const double has = cost::capacity_bytes(row.finalist.priced.request.cluster->device);
  Json json = Json::object({{"device_bytes", row.device_bytes(m)}, {"device_has_bytes", has}});
  for (const std::string& name : cost::kReadings.names())
    json.set(name + "_bytes", cost::read_bytes(m, *cost::kReadings.find(name)));
  const auto share = row.out_of_memory();
  json.set("out_of_memory", share ? Json(*share) : Json());
  for (const cost::MemoryClass& part : cost::classes_of(m)) json.set(part.name, part.bytes);
  json.set("pipeline_rank", m.stage);
  json.set("event", cost::to_text(m.event));
  return json;
}

Json alternatives_json(const std::vector<planner::Alternative>& list) {
  Json json = Json::array();
  for (const planner::Alternative& other : list) {
    Json one = Json::object({{"change", other.change}, {"found", other.found.has_value()}});
    if (other.found)
      one.set("name", to_text(planner::layout_of(*other.found)))
          .set("step_s", other.found->seconds);
    else
      one.set("least_bytes", other.least_bytes);
    json.push(std::move(one));
  }
  return json;
}

// A row of the catalogue by its name, other models by all that they are.
Json model_json(const model::ModelConfig& model) {
  const auto row = model::find(model.name);
  if (row.ok() && row->config == model) return Json::object({{"name", model.name}});
  config::Report report;
  const auto read =
      config::parse_document(model::model_text(model), "model", config::Format::kToml, report);
  return config::to_json(read->root());
}

// How the written file calls one that `from` calls so; the same unless there is a file of that
// name.
std::string beside_out(const Args& args, const std::filesystem::path& from, const std::string& name,
                       const std::string& ending) {
  const std::filesystem::path there = from / name;
  std::error_code none;
  const bool is_file = std::filesystem::is_regular_file(there.string() + ending, none);
  if (!is_file || std::filesystem::path(name).is_absolute()) return name;
  const auto place = std::filesystem::absolute(args.text("out")).parent_path();
  return std::filesystem::proximate(there, place).string();
}

// Files that a run file names lie beside it, and its copy may be written elsewhere.
void name_files_anew(const Args& args, Json& run) {
  const auto from = std::filesystem::path(args.text("FILE")).parent_path();
  if (const Json* found = run.find("model"); found != nullptr && found->find("name") != nullptr) {
    Json model = *found;
    model.set("name", beside_out(args, from, found->find("name")->as_text(), ""));
    run.set("model", std::move(model));
  }
  const Json* found = run.find("data");
  if (found == nullptr || found->find("files") == nullptr) return;
  Json data = *found, files = Json::array();
  for (const Json& file : found->find("files")->items())
    files.push(beside_out(args, from, file.as_text(), ".bin"));
  data.set("files", std::move(files));
  run.set("data", std::move(data));
}

}  // namespace

Json row_json(const Args& args, const PlanRow& row) {
  const planner::Priced& priced = row.finalist.priced;
  const spec::Layout layout = planner::layout_of(row.finalist);
  Json mfu = Json::object(
      {{"causal", row.mfu_causal()}, {"full", row.mfu_full()}, {"peak", row.peak_name()}});
  Json json = Json::object({{"name", to_text(layout)},
                            {"layout", layout_json(layout)},
                            {"devices", row.devices},
                            {"microbatch", priced.request.microbatch},
                            {"microbatches", *layout.microbatches},
                            {"fits", priced.price.fits},
                            {"runs_here", row.runs},
                            {"tied", row.tied},
                            {"step_s", time_json(row)},
                            {"tokens_per_s", row.tokens_per_s()},
                            {"mfu", std::move(mfu)},
                            {"memory", memory_json(row, priced.price.memory)},
                            {"goodput", Json::object({{"share", row.goodput.share},
                                                      {"mtbf_s", row.goodput.mtbf_s},
                                                      {"save_every_s", row.goodput.interval_s}})}});
  if (const std::int64_t ep = priced.request.ep; ep > 1 && row.walked.empty())
    json.set("if_met", Json::object({{"twice_bytes", row.bytes_if_met(2)},
                                     {"all_bytes", row.bytes_if_met(static_cast<double>(ep))}}));
  if (args.flag("memory") || args.has("report"))
    json.set("stages", Json::list(row.stages(), [&](const cost::Memory& held) {
               return memory_json(row, held);
             }));
  if (args.has("tokens")) {
    const RunCost cost = run_cost(args, row);
    json.set("run", Json::object({{"tokens", args.real("tokens")},
                                  {"days", cost.days},
                                  {"device_hours", cost.device_hours},
                                  {"money", cost.money ? Json(*cost.money) : Json()}}));
  }
  return json;
}

Json plan_json(const Args& args, const PlanRequest& request, const PlanAnswer& answer) {
  const std::string dtype =
      request.calibrated ? std::string(to_text(request.dtype)) : args.text("dtype");
  Json json = Json::object(
      {{"schema", "lockstep.plan/2"},
       {"model", request.model.name},
       {"cluster", request.cluster.name},
       {"dtype", dtype},
       {"seq", request.question.seq},
       {"global_batch", request.question.global_batch},
       {"objective", args.text("objective")},
       {"layouts", answer.layouts},
       {"priced", answer.priced},
       {"simulated", answer.simulated},
       {"walk_s", answer.walk_s},
       {"all_s", answer.all_s},
       {"plans", Json::list(answer.rows, [&](const PlanRow& row) { return row_json(args, row); })},
       {"warnings", Json::list(answer.warnings)}});
  if (const auto* framework = request.question.framework)
    json.set("for", Json::object({{"framework", framework->name},
                                  {"version", framework->title},
                                  {"source", framework->source}}));
  if (answer.own) json.set("own", row_json(args, *answer.own));
  if (!request.tried.empty()) json.set("tried", trials_json(request));
  if (request.observed) json.set("observed", request.observed->json());
  if (args.flag("explain")) {
    json.set("neighbours", alternatives_json(planner::neighbours(request.question,
                                                                 answer.rows.front().finalist)));
    json.set("rule_of_thumb", alternatives_json({planner::rule_of_thumb(request.question)}));
    json.set("sharding_rule", alternatives_json({planner::sharding_rule(request.question)}));
  }
  if (!request.changes.empty())
    json.set("what_if", alternatives_json(with_changes(request, answer.rows.front())));
  if (args.has("report")) json.set("report", report_json(args, request, answer));
  return json;
}

Json run_json(const Args& args, const PlanRequest& request, const PlanRow& row) {
  Json json = request.run ? config::to_json(request.run->root()) : Json::object();
  if (!request.run) json.set("model", model_json(request.model));
  if (request.run) name_files_anew(args, json);
  Json batch = request.run && json.find("batch") != nullptr ? *json.find("batch") : Json::object();
  batch.set("seq", request.question.seq).set("global_batch", request.question.global_batch);
  batch.set("microbatch", row.finalist.priced.request.microbatch);
  // Fewer devices than the cluster has are a cluster of their own.
  const std::string name = row.devices == request.cluster.count
                               ? beside_out(args, "", request.cluster_text, "")
                               : join_parts(request.cluster.device.name, ":", row.devices);
  json.set("cluster", Json::object({{"name", name}}));
  json.set("layout", layout_json(planner::layout_of(row.finalist)));
  json.set("batch", std::move(batch));
  return json;
}

}  // namespace lockstep::cli
