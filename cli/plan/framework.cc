#include "cli/plan/framework.h"

#include <algorithm>
#include <ostream>

#include "cli/plan/report.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"
#include "lockstep/planner/emit/emit.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> texts(const std::vector<std::string_view>& list) {
  return {list.begin(), list.end()};
}

planner::Job job_of(const PlanRequest& request, const PlanRow& row) {
  constexpr std::int64_t kLargestNode = 16, kOfRacks = 4;  // a rack is many nodes
  const cost::PriceRequest& r = row.finalist.priced.request;
  const std::int64_t inner = request.cluster.tiers.front().size;
  return {request.model,
          planner::layout_of(row.finalist),
          {request.question.seq, request.question.global_batch,
           static_cast<std::int64_t>(r.microbatch)},
          r.precision == cost::Precision::kFp8,
          inner <= kLargestNode ? inner : kOfRacks};
}

}  // namespace

const planner::Framework* framework_of(const Args& args) {
  for (const char* option : {"for", "emit"})
    if (args.has(option)) return planner::find_framework(args.text(option));
  return nullptr;
}

std::vector<std::string> framework_names(bool written) {
  std::vector<std::string> names;
  for (const planner::Framework& one : planner::frameworks())
    if (one.is_written || !written) names.emplace_back(one.name);
  return names;
}

void check_framework(const Args& args, const planner::Question& question, config::Report& report) {
  const planner::Framework* framework = question.framework;
  if (framework == nullptr) return;
  const auto refuse = [&](std::string message, std::string help) {
    report.add(Error{Code::kConflict, std::move(message), std::move(help)});
  };
  if (args.has("emit") && args.text("emit") != framework->name)
    refuse(join_parts("--emit ", args.text("emit"), " of a plan --for ", framework->name),
           join_parts("--emit implies --for: leave --for out, or write --emit ", framework->name));
  if (args.has("calibration"))
    refuse(join_parts("--", args.has("for") ? "for " : "emit ", framework->name,
                      " prices another framework, but --calibration times this one"),
           "leave one of them out");
  if (question.precision == cost::Precision::kFp8 && !framework->fp8) {
    std::vector<std::string> able;
    for (const planner::Framework& one : planner::frameworks())
      if (one.fp8) able.emplace_back(one.name);
    refuse(join_parts("--dtype fp8, which ", framework->title, " does not have"),
           join_parts("those that have are ", config::listed(able), "; or plan with --dtype bf16"));
  }
  if (framework->only_gpt && question.shape != nullptr && question.shape->learned_positions == 0)
    refuse(join_parts(framework->title, " trains models of GPT-2's kind alone"),
           "plan with --model gpt2, or without --for");
  for (const pipeline::CatalogRow* row : question.schedules)
    if (!runs(*framework, row->name))
      refuse(join_parts("--schedules ", row->name, ", which ", framework->title, " does not run"),
             "it runs " + config::listed(texts(framework->schedules)));
}

Result<void> check_layout(const planner::Question& question, const spec::Layout& layout,
                          std::int64_t microbatch) {
  if (question.framework == nullptr) return {};
  const auto request = planner::request_of(question, layout, microbatch);
  if (!request.ok()) return request.error();
  const auto missing = planner::lacking(*question.framework, layout, *request);
  if (missing.empty()) return {};
  return Error{Code::kConflict,
               join_parts(question.framework->title, " does not run ", listed(missing)),
               "leave it out of --layout, and what it does run is sought"};
}

Result<ExitCode> print_script(const PlanRequest& request, const PlanRow& row, Output& output) {
  const planner::Framework& framework = *request.question.framework;
  const planner::Job job = job_of(request, row);
  const auto made = planner::emit(framework, job);
  if (!made.ok()) return made.error();
  std::vector<std::string> notes = made->notes;
  notes.insert(notes.begin(), request.notes.begin(), request.notes.end());
  if (!row.finalist.priced.price.fits)
    notes.insert(notes.begin(),
                 join_parts("it does not fit: ", gibibytes(row.device_bytes()), " of ",
                            gibibytes(cost::capacity_bytes(request.cluster.device))));
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.plan-emit/2"},
                                            {"framework", framework.name},
                                            {"version", framework.title},
                                            {"layout", to_text(job.layout)},
                                            {"step_s", row.seconds()},
                                            {"fits", row.finalist.priced.price.fits},
                                            {"text", made->text},
                                            {"notes", Json::list(notes)}}));
  output.out << made->text;
  output.err << "layout: " << to_text(job.layout) << ", " << to_text(Seconds{row.seconds()})
             << " a step\n";
  for (const std::string& one : notes) output.err << "note: " << one << "\n";
  return ExitCode::kOk;
}

void warn_of_words(const PlanRequest& request, PlanAnswer& answer) {
  const planner::Framework* framework = request.question.framework;
  if (framework == nullptr || !framework->is_written || answer.rows.empty()) return;
  const auto made =
      planner::emit(*request.question.framework, job_of(request, answer.rows.front()));
  if (!made.ok()) answer.warnings.push_back("no script can be written: " + made.error().message);
}

}  // namespace lockstep::cli
