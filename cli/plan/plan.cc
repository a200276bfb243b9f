// lockstep plan: the best layout for a model and a cluster, what it costs, and why.
#include <ostream>
#include <string>
#include <vector>

#include "cli/plan/answer.h"
#include "cli/plan/report.h"
#include "cli/plan/request.h"
#include "cli/run_file.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/planner/emit/emit.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

// The text alone on `out`, so that it can be piped; what it cannot say on `err`.
ExitCode emit(const Args& args, const PlanRequest& request, const PlanRow& row, Output& output) {
  const cost::PriceRequest& priced = row.finalist.priced.request;
  const planner::Job job{request.model,
                         planner::layout_of(row.finalist),
                         {request.question.seq, request.question.global_batch,
                          static_cast<std::int64_t>(priced.microbatch)},
                         priced.precision == cost::Precision::kFp8};
  for (const planner::Framework& framework : planner::frameworks()) {
    if (framework.name != args.text("emit")) continue;
    const planner::Emitted made = framework.emit(job);
    if (output.json) {
      Json missing = Json::array(), notes = Json::array();
      for (const std::string& one : made.missing) missing.push(one);
      for (const std::string& one : made.notes) notes.push(one);
      print_json(output, Json::object({{"schema", "lockstep.plan-emit/1"},
                                       {"framework", framework.name},
                                       {"layout", to_text(job.layout)},
                                       {"written", to_text(made.layout)},
                                       {"text", made.text},
                                       {"missing", std::move(missing)},
                                       {"notes", std::move(notes)}}));
      return ExitCode::kOk;
    }
    output.out << made.text;
    output.err << "layout: " << to_text(job.layout) << "\n";
    for (const std::string& one : made.missing) output.err << "cannot express: " << one << "\n";
    if (const auto again =
            planner::time_layout(request.question, made.layout, job.batch.microbatch);
        again.ok() && !made.missing.empty()) {
      output.err << "as written: " << to_text(Seconds{again->seconds}) << " a step instead of "
                 << to_text(Seconds{row.seconds()})
                 << (again->priced.price.fits ? "" : ", and it does not fit") << "\n";
    }
    for (const std::string& one : made.notes) output.err << "note: " << one << "\n";
  }
  return ExitCode::kOk;
}

ExitCode print(const Args& args, const PlanRequest& request, const PlanAnswer& answer,
               Output& output) {
  if (output.json) {
    print_json(output, plan_json(args, request, answer));
    return ExitCode::kOk;
  }
  print_plan(args, request, answer, output);
  if (args.flag("memory")) print_memory(answer, output);
  if (args.flag("explain")) print_explanation(request, answer, output);
  if (!request.changes.empty()) print_changes(request, answer, output);
  return ExitCode::kOk;
}

ExitCode run_plan(const Args& args, Output& output) {
  config::Report report;
  PlanRequest request;
  const bool can_be_read = read_plan_request(args, request, report);
  if (!can_be_read || !report.ok()) return fail(output, report, subject_of(args));
  PlanAnswer answer;
  answer_plan(args, request, answer);
  if (answer.refused) return fail(output, *answer.refused);
  if (answer.rows.empty()) {
    fail(output, nothing_found(request, answer));
    return ExitCode::kCheckFailed;
  }
  const PlanRow& best = answer.rows.front();
  if (args.has("svg"))
    if (const auto written = write_text(args.text("svg"), memory_svg(request, best)); !written.ok())
      return fail(output, written.error());
  if (args.has("out")) {
    const auto written = write_text(args.text("out"), run_json(args, request, best).dump(2) + "\n");
    if (!written.ok()) return fail(output, written.error());
  }
  const ExitCode code =
      args.has("emit") ? emit(args, request, best, output) : print(args, request, answer, output);
  return best.finalist.priced.price.fits ? code : ExitCode::kCheckFailed;
}

std::vector<Option> plan_options() {
  std::vector<Option> list = plan_request_options();
  for (Option& option : plan_answer_options()) list.push_back(std::move(option));
  std::vector<std::string> names;
  for (const planner::Framework& framework : planner::frameworks())
    names.emplace_back(framework.name);
  list.push_back({.name = "explain",
                  .help = "Why this one: what its neighbours lose, what more memory or network "
                          "would buy, what the rule of thumb says",
                  .group = "Answers"});
  list.push_back({.name = "memory",
                  .help = "Bars of what each pipeline rank holds, and what its device has",
                  .group = "Answers"});
  list.push_back({.name = "svg",
                  .value = "OUT",
                  .help = "With --memory: the bars as a picture",
                  .group = "Answers"});
  list.push_back({.name = "emit",
                  .value = "FRAMEWORK",
                  .type = OptionType::kChoice,
                  .help = "Print the best layout in the words of another framework, and what it "
                          "cannot express",
                  .group = "Answers",
                  .choices = names});
  list.push_back(
      {.name = "out",
       .value = "OUT",
       .help = "Write the best layout as a run file, for `lockstep train --plan OUT FILE`",
       .group = "Answers",
       .letter = 'o'});
  return list;
}

}  // namespace

Verb plan_verb() {
  return {
      .name = "plan",
      .summary = "Find the best layout for a model and a cluster",
      .description =
          "Prices every layout of the model on the cluster in closed form, simulates the best, and "
          "shows them with their time, memory and cost. Also prices layouts that this version does "
          "not run. Exit code 1 when nothing fits.",
      .examples = {{"lockstep plan run.toml", "the fastest layouts for a run file"},
                   {"lockstep plan --model llama3-8b --cluster h100:8 --seq 8192 "
                    "--global-batch 512",
                    "without a file"},
                   {"lockstep plan run.toml --explain", "with reasons"},
                   {"lockstep plan run.toml --layout tp=8,pp=4,zero=1", "a layout of your own"},
                   {"lockstep plan run.toml --emit megatron", "as flags of Megatron-LM"}},
      .options = plan_options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, cluster and batch; its "
                               "[layout], if any, is compared",
                       .required = false}},
      .run = run_plan};
}

}  // namespace lockstep::cli
