// lockstep plan: the best layout for a model and a cluster, what it costs, and why.
#include <ostream>
#include <string>
#include <vector>

#include "cli/plan/answer.h"
#include "cli/plan/compare.h"
#include "cli/plan/framework.h"
#include "cli/plan/page.h"
#include "cli/plan/report.h"
#include "cli/plan/request.h"
#include "cli/plan/targets.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/observe/memory_risk.h"
#include "lockstep/planner/lattice.h"

namespace lockstep::cli {
namespace {

ExitCode print(const Args& args, const PlanRequest& request, const PlanAnswer& answer,
               Output& output) {
  if (args.flag("csv")) {
    output.out << csv_header();
    for (const PlanRow& row : answer.rows) output.out << csv_line(args, request, &row);
    for (const std::string& one : answer.warnings) output.err << "note: " << one << "\n";
    return ExitCode::kOk;
  }
  print_plan(args, request, answer, output);
  if (args.flag("memory")) print_memory(answer, output);
  if (args.flag("explain")) print_explanation(request, answer, output);
  if (!request.changes.empty()) print_changes(request, answer, output);
  return ExitCode::kOk;
}

Result<ExitCode> run_plan(const Args& args, Output& output) {
  if (args.flag("csv") && output.json)
    return Error{Code::kConflict, "--csv and --json are two forms of one answer",
                 "leave one of them out"};
  if (args.has("compare")) return compare(args, output);
  config::Report report;
  PlanRequest request;
  const bool can_be_read = read_plan_request(args, request, report);
  if (!can_be_read || !report.ok()) return fail(output, report, subject_of(args));
  if (const auto error = choose_devices(args, request)) {
    fail(output, *error);
    return error->code == Code::kTargetMissed ? ExitCode::kCheckFailed : exit_code_of(error->code);
  }
  if (args.has("learned"))
    LS_TRY(output.write(args.text("learned"), request.observed->json().dump(2) + "\n"));
  PlanAnswer answer;
  answer_plan(args, request, answer);
  if (answer.refused) return *answer.refused;
  if (args.flag("fits")) return print_fits(request, answer, output);
  if (answer.rows.empty()) {
    fail(output, nothing_found(request, answer));
    return ExitCode::kCheckFailed;
  }
  const PlanRow& best = answer.rows.front();
  if (args.has("svg")) LS_TRY(output.write(args.text("svg"), memory_svg(request, best)));
  if (args.has("out"))
    LS_TRY(output.write(args.text("out"), run_json(args, request, best).dump(2) + "\n"));
  const Json json = output.json || args.has("report") ? plan_json(args, request, answer) : Json();
  if (args.has("report"))
    LS_TRY(output.write(args.text("report"), plan_page(json, timeline_svg(best))));
  const Result<ExitCode> code = args.has("emit") ? print_script(request, best, output)
                                : output.json    ? print_json(output, json)
                                                 : print(args, request, answer, output);
  return best.finalist.priced.price.fits || !code.ok() ? code : ExitCode::kCheckFailed;
}

Option positive(const char* name, const char* value, const char* help) {
  return real(name, value, help).between(1e-9, 1e30);
}

std::vector<Option> questions() {
  return {
      text("model", "MODEL",
           "A known model, a model file, or a Hugging Face directory or config.json, when there is "
           "no FILE"),
      text("cluster", "CLUSTER",
           "A cluster such as h100:16384, or a cluster file; in place of that of FILE"),
      integer("devices", "N", "So many of the cluster's kind, as 512 or 1k (1024)")
          .between(1, 2147483647)
          .with(Suffixes::kBinary),
      integer("seq", "TOKENS",
              "Tokens in a sequence, as 8192 or 8k (8192); in place of those of FILE")
          .between(1, 2147483647)
          .with(Suffixes::kBinary),
      integer("global-batch", "N",
              "Sequences in a step, over all devices, as 2048 or 2k (2048); in place of those of "
              "FILE")
          .between(1, 1e12)
          .with(Suffixes::kBinary),
      text("layout", "LAYOUT",
           "Price this layout instead of seeking one, as tp=8,pp=16,zero=1,schedule=interleaved; "
           "dp is what is left, other settings that are not said are sought"),
      text("schedules", "NAMES",
           "Pipeline schedules to choose from, as 1f1b,interleaved [default: all that are "
           "planned]"),
      choice("for", "FRAMEWORK", framework_names(),
             "Only layouts that this framework runs, priced as it runs them"),
      flag("runnable",
           "Only layouts that this version runs: without sequence parallelism, no etp but tp"),
      choice("dtype", "TYPE", {"bf16", "fp8"}, "Type of matrix products").initially("bf16"),
      text("calibration", "IN",
           "What `lockstep calibrate` measured of FILE on this machine: layouts are timed op by op "
           "with it. A directory stands for its *.json files; several add up, one for each "
           "microbatch and tp")
          .repeats(),
      text("observed", "RUNS",
           "Runs that you timed: a CSV such as layout,step_s, with logs of Megatron-LM or "
           "torchtitan, a metrics.jsonl, or what --learned wrote. Every time follows them, with a "
           "P95, see docs/observed.md"),
      text("learned", "OUT", "Write what --observed taught, to be read by --observed again")};
}

std::vector<Option> answers() {
  return {
      choice("objective", "WHAT", {"time", "goodput", "cost"},
             "What is best: `time`, the fastest step on all devices; `goodput`, the most tokens a "
             "second when failures are counted; `cost`, the fewest device-hours a token. The last "
             "two may leave devices unused")
          .initially("time"),
      integer("top", "N", "Layouts to show, each of other degrees; with --calibration all kinds")
          .initially("8")
          .between(1, 64),
      positive("tokens", "N", "Token budget, as 15T or 15e12: tells days and device-hours")
          .with(Suffixes::kDecimal),
      positive("price", "MONEY", "Of a device-hour, as 2.5 or '$2.5': tells what --tokens cost")
          .with(Suffixes::kMoney),
      positive("target-days", "DAYS",
               "The fewest devices of the cluster's kind, at most as many as it has, that train "
               "--tokens in so many days"),
      positive("max-cost", "MONEY",
               "The fastest of them at which --tokens cost no more; with --target-days the fewest")
          .with(Suffixes::kMoney),
      text("compare", "WHAT",
           "One table of the best of each: a cluster (b200:256, b200:256@3.5 at another price), a "
           "layout (tp=8,pp=4), numbers of devices (64,128 or 64..1024, doubled). The first is "
           "that of the other options, but where there are numbers of devices alone")
          .repeats(),
      flag("fits",
           "Say in one line whether the layout of --layout or FILE, else any, fits into memory: "
           "exit code 0 or 1"),
      flag("csv", "The table as CSV, one line for each row, see docs/planning.md"),
      positive("critical-batch", "TOKENS", "Warn when a step has more, see docs/noise-scale.md")
          .with(Suffixes::kDecimal)};
}

std::vector<Option> failures() {
  return {positive("mtbf", "HOURS", "Device-hours between failures (Llama 3, arXiv 2407.21783)")
              .initially("50700")
              .with(Suffixes::kDecimal),
          positive("save", "SECONDS", "That a checkpoint holds training up").initially("5"),
          positive("restart", "SECONDS", "From a failure to the next step").initially("300")};
}

std::vector<Option> forms() {
  return {flag("explain",
               "Why this one: what its neighbours lose, what more memory or network would "
               "buy, what the rule of thumb says"),
          flag("memory", "Bars of what each pipeline rank holds, and what its device has"),
          text("svg", "OUT", "With --memory: the bars as a picture"),
          text("report", "OUT",
               "Write all of this as one page of HTML that needs nothing else: answer, "
               "alternatives, reasons, memory, timeline, cost, and what it rests on"),
          choice("emit", "FRAMEWORK", framework_names(/*written=*/true),
                 "Print the best layout as a launch script of another framework; implies --for"),
          text("out", "OUT",
               "Write the best layout as a run file, for `lockstep train --plan OUT FILE`")
              .short_name('o')};
}

std::vector<Option> plan_options() {
  return grouped(
      {{"What", questions()},
       {"Answers",
        {text("what-if", "WHAT=FACTORx",
              "The best layout with so much more: memory, network, scale-up, flops or "
              "batch, as network=2x")
             .repeats()}},
       {"What",
        {real("risk", "SHARE",
              "The fastest of layouts that run out of memory in no more of runs like them, as 0.05")
             .between(0.0001, 0.9999),
         real("headroom", "SHARE",
              strf("Of a device's memory that a layout has to leave free; one of --layout need not "
                   "[default: %g, a risk of %.2g]",
                   planner::kHeadroom,
                   observe::out_of_memory(observe::published_need(), 1 - planner::kHeadroom, 1)))
             .between(0, 0.9),
         set_option()}},
       {"Answers", answers()},
       {"Failures", failures()},
       {"Answers", forms()}});
}

}  // namespace

Verb plan_verb() {
  return {
      .name = "plan",
      .summary = "Find the best layout for a model and a cluster",
      .description =
          "Prices every layout of the model on the cluster in closed form, simulates the best, "
          "and shows them with their time, memory and cost. Also prices layouts that this "
          "version does not run. Exit code 1 when nothing fits or no target is met.",
      .examples = {{"lockstep plan run.toml", "the fastest layouts for a run file"},
                   {"lockstep plan --model llama3-8b --cluster h100:8 --seq 8192 "
                    "--global-batch 512",
                    "without a file"},
                   {"lockstep plan run.toml --explain", "with reasons"},
                   {"lockstep plan run.toml --report plan.html", "a page to hand on"},
                   {"lockstep plan run.toml --layout tp=8,pp=4,zero=1", "a layout of your own"},
                   {"lockstep plan run.toml --risk 0.05", "one that seldom runs out of memory"},
                   {"lockstep plan run.toml --tokens 1T --target-days 30", "the fewest devices"},
                   {"lockstep plan run.toml --compare b200:256", "beside another machine"},
                   {"lockstep plan run.toml --compare 64..512 --csv", "how it scales"},
                   {"lockstep plan run.toml --observed runs.csv", "corrected by runs you timed"},
                   {"lockstep plan run.toml --emit megatron > launch.sh",
                    "a launch script of what Megatron-LM does fastest"}},
      .options = plan_options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, cluster and batch; its "
                               "[layout], if any, is compared",
                       .required = false}},
      .run = run_plan};
}

}  // namespace lockstep::cli
