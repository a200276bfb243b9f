#include "cli/plan/file.h"

#include <utility>

#include "cli/run_file.h"
#include "lockstep/base/check.h"
#include "lockstep/cost/measured/fingerprint.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

// What a plan holds for: sizes of the model, and the batch.
cost::Fingerprint planned_for(const spec::Spec& spec) {
  const model::ModelConfig& model = spec.model;
  cost::Fingerprint print = cost::fingerprint(model, {});
  std::erase_if(print, [](const cost::Trait& trait) { return !trait.name.starts_with("model."); });
  for (const auto& [name, value] : {std::pair{"model.layers", model.layers},
                                    {"model.experts", model.moe.experts},
                                    {"model.top_k", model.moe.top_k},
                                    {"model.expert_ffn", model.moe.expert_ffn},
                                    {"model.kv_rank", model.mla.kv_rank},
                                    {"batch.seq", spec.batch.seq},
                                    {"batch.global_batch", spec.batch.global_batch}})
    print.push_back({name, std::to_string(value)});
  return print;
}

}  // namespace

Option plan_option() {
  return text("plan", "IN",
              "Divide the run as this file of `lockstep plan --out` says; refused when that was "
              "made for another model, sequence or batch");
}

std::optional<config::Document> with_plan(const Args& args, config::Document run,
                                          config::Report& report) {
  if (!args.has("plan")) return run;
  const std::string name = args.text("plan");
  const auto refuse = [&](const std::string& message, std::string help) {
    report.add(Error{Code::kConflict, join_parts("--plan ", name, " ", message), std::move(help)});
  };
  if (!args.has("FILE")) {
    refuse("takes the layout of a run from a plan, but no run file is given",
           join_parts("a plan is a run file itself: `lockstep train ", name, "`"));
    return std::nullopt;
  }
  for (const std::string& assignment : args.texts("set"))
    if (assignment.starts_with("layout.") || assignment.starts_with("batch.microbatch"))
      refuse(join_parts("and --set ", assignment, " both say how the run is divided"),
             "leave one of them out");
  const auto plan = report.ok() ? config::load_document(name, report) : std::nullopt;
  if (!plan) return std::nullopt;
  // Clusters and layouts are left out: what counts is what is trained.
  const auto planned = spec::read_spec(without(*plan, {"cluster", "data"}), report);
  const auto own = spec::read_spec(without(run, {"cluster", "layout"}), report);
  if (!planned || !own) return std::nullopt;
  const cost::Fingerprint ours = planned_for(*own), theirs = planned_for(*planned);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (ours[i].value != theirs[i].value)
      refuse(join_parts("is for ", ours[i].name, " = ", theirs[i].value, ", but ",
                        args.text("FILE"), " has ", ours[i].value),
             join_parts("plan for this run: `lockstep plan ", args.text("FILE"),
                        " --cluster CLUSTER --out ", name, "`"));
  if (!report.ok()) return std::nullopt;
  run = without(run, {"layout"});
  for (const char* key : {"layout", "batch.microbatch"})
    if (const config::Entry* entry = plan->find(key); entry != nullptr)
      run.set(key, entry->key_span, entry->value);
  return run;
}

}  // namespace lockstep::cli
