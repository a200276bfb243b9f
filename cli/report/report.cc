// lockstep report: what runs were and did, from their folders.
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "cli/report/page.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostReported = 6;  // as many colours as can be told apart

std::string text_of(const Json& json, const char* key, const char* format) {
  const Json* const found = json.find(key);
  if (found == nullptr) return "-";
  return found->is_number() ? strf(format, found->as_real()) : found->as_text();
}

void print_runs(const Json& report, Output& output) {
  const auto real = [](const char* key, const char* format) {
    return [=](const Json& run) { return text_of(run, key, format); };
  };
  const std::vector<Json>& runs = report.find("runs")->items();
  std::vector<Column<Json>> columns = {
      {"", 'l', [](const Json& run) { return run.find("label")->as_text(); }, 0, ""},
      {"run", 'l', [](const Json& run) { return run.find("name")->as_text(); }},
      {"layout", 'l', [](const Json& run) { return run.find("layout")->as_text(); }, 3},
      {"steps", 'r', real("done", "%.0f")},
      {"loss", 'r', real("last_loss", "%.5f")},
      {"validation", 'r',
       [](const Json& run) {
         const Json* const eval = run.find("eval");
         return eval == nullptr ? "-" : text_of(*eval, "loss", "%.5f");
       },
       2, "-"},
      {"tokens/s", 'r', real("tokens_per_second", "%.0f"), 1},
      {"peak", 'r',
       [](const Json& run) {
         const Json* const peak = run.find("peak_bytes");
         return peak == nullptr ? "-" : to_text(Bytes{peak->as_int()});
       },
       4},
      {"status", 'l', [](const Json& run) { return run.find("ending")->as_text(); }, 5}};
  fit(columns, runs, output.table_width);
  print_table(output.out, columns, runs);
  for (const Json& run : runs)
    for (const Json& note : run.find("notes")->items())
      output.out << wrapped(join_parts(run.find("name")->as_text(), ": ", note.as_text()), 2, 0,
                            output.width);
}

Result<ExitCode> run_report(const Args& args, Output& output) {
  const std::vector<std::string> folders = args.texts("RUN");
  if (folders.size() > kMostReported)
    return Error{Code::kOutOfRange,
                 join_parts(folders.size(), " runs are more than one page can tell apart"),
                 join_parts("at most ", kMostReported)};
  if (std::set(folders.begin(), folders.end()).size() < folders.size())
    return Error{Code::kConflict, "a run is named twice", "name each once"};
  if (args.has("html")) LS_TRY(check_writable(args.text("html")));
  std::vector<RunFolder> runs;
  for (const std::string& folder : folders) runs.push_back(LS_TRY(read_run(folder)));
  const Json report = report_json(runs);
  if (args.has("html")) LS_TRY(write_text(args.text("html"), report_page(report, runs)));
  if (output.json) return print_json(output, report);
  print_runs(report, output);
  if (args.has("html")) output.out << "\nwrote " << args.text("html") << '\n';
  return ExitCode::kOk;
}

}  // namespace

Verb report_verb() {
  return {.name = "report",
          .summary = "What runs were and did, as a page to hand on",
          .description =
              "Reads the folders of --save or --metrics of `lockstep train`: metrics.jsonl, "
              "config.toml, environment.json and checkpoints; a run may still go on. The page of "
              "--html "
              "needs nothing else: losses, curves, memory and traffic predicted and measured, a "
              "step as "
              "a picture, checkpoints, settings. Of several runs curves lie over each other, and "
              "settings that differ stand in a table.",
          .examples = {{"lockstep report out", "how far the run in out/ is"},
                       {"lockstep report out --html report.html", "all about it, as one page"},
                       {"lockstep report a b c --html report.html", "three runs compared"}},
          .options = {text("html", "OUT", "Write one page of HTML that needs nothing else")},
          .positionals = {{.name = "RUN", .help = "Folder of a run", .repeated = true}},
          .run = run_report};
}

}  // namespace lockstep::cli
