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

class PlanPut {
 public:
  PlanPut(const Args& args, config::Report& report)
      : report_(report), name_(args.text("plan")), args_(args) {}

  std::optional<config::Document> into(config::Document run) {
    if (!args_.has("FILE")) {
      refuse("takes the layout of a run from a plan, but no run file is given",
             join_parts("a plan is a run file itself: `lockstep train ", name_, "`"));
      return std::nullopt;
    }
    for (const std::string& assignment : args_.texts("set"))
      if (assignment.starts_with("layout.") || assignment.starts_with("batch.microbatch"))
        refuse(join_parts("and --set ", assignment, " both say how the run is divided"),
               "leave one of them out");
    if (!report_.ok() || !same_run(run)) return std::nullopt;
    run = without(run, {"layout"});
    if (const config::Entry* layout = plan_->find("layout"); layout != nullptr)
      run.set("layout", layout->key_span, layout->value);
    if (const config::Entry* one = plan_->find("batch.microbatch"); one != nullptr)
      run.set("batch.microbatch", one->key_span, one->value);
    return run;
  }

 private:
  void refuse(const std::string& message, std::string help) {
    report_.add(
        Error{Code::kConflict, join_parts("--plan ", name_, " ", message), std::move(help)});
  }

  // Clusters and layouts are left out: what counts is what is trained.
  bool same_run(const config::Document& run) {
    plan_ = config::load_document(name_, report_);
    if (!plan_) return false;
    const auto planned = spec::read_spec(without(*plan_, {"cluster", "data"}), report_);
    const auto own = spec::read_spec(without(run, {"cluster", "layout"}), report_);
    if (!planned || !own) return false;
    const cost::Fingerprint ours = planned_for(*own), theirs = planned_for(*planned);
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (ours[i].value != theirs[i].value)
        refuse(join_parts("is for ", ours[i].name, " = ", theirs[i].value, ", but ",
                          args_.text("FILE"), " has ", ours[i].value),
               join_parts("plan for this run: `lockstep plan ", args_.text("FILE"),
                          " --cluster CLUSTER --out ", name_, "`"));
    return report_.ok();
  }

  config::Report& report_;
  const std::string name_;
  const Args& args_;
  std::optional<config::Document> plan_;
};

}  // namespace

Option plan_option() {
  return text("plan", "IN",
              "Divide the run as this file of `lockstep plan --out` says; refused when that was "
              "made for another model, sequence or batch");
}

std::optional<config::Document> with_plan(const Args& args, config::Document run,
                                          config::Report& report) {
  if (!args.has("plan")) return run;
  return PlanPut(args, report).into(std::move(run));
}

}  // namespace lockstep::cli
