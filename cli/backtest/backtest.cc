// lockstep backtest: how far predictions are from runs that others published.
#include <algorithm>
#include <ostream>
#include <string>
#include <utility>

#include "cli/table.h"
#include "cli/text_file.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "lockstep/backtest/adapt.h"
#include "lockstep/backtest/report.h"
#include "lockstep/backtest/score.h"
#include "lockstep/base/text.h"
#include "lockstep/draw/scatter.h"

namespace lockstep::cli {

extern const char* const kExcludedToml;  // bench/backtest/excluded.toml, as built in

namespace {

using backtest::Scores;
using backtest::Summary;

Result<std::vector<backtest::Exclusion>> rules_of(const Args& args) {
  std::string text = kExcludedToml, name = "excluded.toml";
  if (args.has("excluded")) {
    name = args.text("excluded");
    text = LS_TRY(read_text(name));
  }
  config::Report report;
  const auto document =
      config::parse_document(std::move(text), name, config::Format::kToml, report);
  if (!document) return Error{Code::kSyntax, "`" + name + "` is not well-formed TOML", ""};
  return backtest::read_exclusions(*document);
}

draw::Scatter scatter_of(const Scores& scores) {
  draw::Scatter scatter{"Step time of published runs",
                        "measured seconds",
                        "predicted seconds",
                        {"calibration", "held out"},
                        0.2,
                        {}};
  for (const backtest::ScoredRun& row : scores.runs)
    if (row.in_headline)
      scatter.dots.push_back({*row.seconds, row.price.time.total(), row.run->is_heldout() ? 1 : 0,
                              row.run->text("id") + strf(": %+.1f %%", 100 * *row.time_error)});
  return scatter;
}

std::vector<std::string> cells(std::string name, const Summary& time, const Summary& baseline,
                               const Summary& memory) {
  const auto percent = [](double value, int rows) {
    return rows > 0 ? strf("%.1f", 100 * value) : std::string("-");
  };
  return {std::move(name),
          std::to_string(time.rows),
          percent(time.median, time.rows),
          percent(time.p90, time.rows),
          time.rows > 0 ? strf("%+.1f", 100 * time.bias) : "-",
          percent(baseline.median, baseline.rows),
          std::to_string(memory.rows),
          percent(memory.median, memory.rows)};
}

void print_split(Output& output, const Scores& scores, int split) {
  Rows rows = {{split == 1 ? "held out" : "calibration", "rows", "median", "p90", "bias",
                "baseline", "memory rows", "median"}};
  for (const backtest::SourceScore& one : scores.sources)
    if (one.heldout == (split == 1) && one.time.rows + one.memory.rows > 0)
      rows.push_back(cells(one.source, one.time, one.baseline, one.memory));
  if (rows.size() == 1) return;
  rows.push_back(cells("all", scores.time[split], scores.baseline[split], scores.memory[split]));
  print_table(output.out, rows, "lrrrrrrr");
  output.out << '\n';
}

void print_scores(Output& output, const Scores& scores) {
  output.out << "Errors in percent: ln(predicted / measured). Rows of grade A and B that ran.\n\n";
  print_split(output, scores, 0);
  print_split(output, scores, 1);
  int excluded = 0, unpriced = 0, heldout = 0, near = 0;
  for (const backtest::ScoredRun& row : scores.runs) {
    excluded += !row.excluded.empty();
    unpriced += !row.not_priced.empty() && row.excluded.empty();
  }
  for (const backtest::Sweep& sweep : scores.sweeps)
    heldout += sweep.heldout, near += sweep.heldout && sweep.regret <= 0.05;
  if (scores.oom.total > 0)
    output.out << strf("out of memory: %d of %d verdicts right, %d missed, %d false alarms\n",
                       scores.oom.right, scores.oom.total, scores.oom.misses,
                       scores.oom.false_alarms);
  if (heldout > 0)
    output.out << strf(
        "rankings: first choice within 5 %% of the best in %d of %d held-out sweeps\n", near,
        heldout);
  output.out << strf(
      "left out: %d rows outside the model, %d that do not say enough (--report lists them)\n",
      excluded, unpriced);
}

// What --adapt, --draws and --seed ask for; nothing without --adapt.
Result<backtest::AdaptProtocol> protocol_of(const Args& args) {
  backtest::AdaptProtocol protocol;
  for (const char* option : {"draws", "seed"})
    if (args.has(option) && !args.has("adapt"))
      return Error{Code::kConflict,
                   join_parts("--", option, " would do nothing: there is no --adapt"),
                   "add --adapt 1,2,4, or leave it out"};
  if (!args.has("adapt")) return protocol;
  const std::string list = args.text("adapt");
  for (const std::string_view part : split(list, ',')) {
    const auto known = number_in<int>(part);
    if (!known || *known < 0 || *known > static_cast<int>(observe::kMostRuns))
      return Error{Code::kBadOptionValue,
                   join_parts("--adapt ", list, ": `", part, "` is no number of rows"),
                   join_parts("numbers from 0 to ", observe::kMostRuns, ", as --adapt 1,2,4")};
    protocol.known.push_back(*known);
  }
  if (args.has("draws")) protocol.draws = static_cast<int>(args.integer("draws"));
  if (args.has("seed")) protocol.seed = static_cast<std::uint64_t>(args.integer("seed"));
  return protocol;
}

// Every K has some source to draw from.
Result<void> check_adapted(const std::vector<backtest::AdaptScore>& scores) {
  for (const backtest::AdaptScore& one : scores) {
    if (one.time.all.error.rows + one.memory.all.error.rows > 0) continue;
    int most = 0;
    for (const auto& [source, rows] : one.time.left_out) most = std::max(most, rows);
    for (const auto& [source, rows] : one.memory.left_out) most = std::max(most, rows);
    return Error{Code::kBadOptionValue,
                 join_parts("--adapt ", one.known, ": no source has more than ", one.known + 1,
                            " rows to draw them from"),
                 most > 1 ? join_parts("at most ", most - 2) : "the file has no such rows"};
  }
  return {};
}

void add_adapt_row(Rows& rows, int known, const std::string& name,
                   const backtest::AdaptSummary& of) {
  if (of.error.rows == 0) return;
  rows.push_back({std::to_string(known), name, strf("%.1f", 100 * of.error.median),
                  strf("%.1f", 100 * of.error.p90), strf("%.0f", 100 * of.p50),
                  strf("%.0f", 100 * of.p95)});
}

void print_adapt(Output& output, const std::vector<backtest::AdaptScore>& scores) {
  for (const auto& [title, figures] : {std::pair{"step time", &backtest::AdaptScore::time},
                                       std::pair{"memory", &backtest::AdaptScore::memory}}) {
    Rows rows = {{"known", title, "median", "p90", "within P50", "within P95"}};
    for (const backtest::AdaptScore& one : scores) {
      for (const auto& [name, sum] : (one.*figures).sources)
        add_adapt_row(rows, one.known, name, sum);
      add_adapt_row(rows, one.known, "all", (one.*figures).all);
    }
    if (rows.size() > 1) {
      output.out << "\nSo many rows of a source known, its others predicted; percent.\n";
      print_table(output.out, rows, "rlrrrr");
    }
    for (const backtest::AdaptScore& one : scores)
      for (const auto& [name, count] : (one.*figures).left_out)
        output.out << join_parts(one.known, " known, ", title, ": ", name, " is left out, with ",
                                 counted(count, "row"), "\n");
  }
}

Result<ExitCode> run_backtest(const Args& args, Output& output) {
  const std::string name = args.text("FILE");
  const auto protocol = LS_TRY(protocol_of(args));
  const auto text = LS_TRY(read_text(name));
  backtest::RunTable table;
  LS_TRY(backtest::read_runs(text, table));
  const auto rules = LS_TRY(rules_of(args));
  const Scores scores = backtest::score(table, rules);
  if (args.has("svg"))
    LS_TRY(output.write(args.text("svg"), draw::scatter_svg(scatter_of(scores))));
  if (args.has("report")) {
    const std::string shown = name.substr(name.find_last_of('/') + 1);
    LS_TRY(output.write(args.text("report"), accuracy_page(scores, shown)));
  }
  if (args.has("rows")) LS_TRY(output.write(args.text("rows"), backtest::rows_csv(scores)));
  const auto adapted = adapt(scores, protocol);
  LS_TRY(check_adapted(adapted));
  if (output.json) {
    Json json = to_json(scores);
    if (!adapted.empty()) json.set("adapt", to_json(adapted, protocol));
    return print_json(output, json);
  }
  print_scores(output, scores);
  print_adapt(output, adapted);
  return ExitCode::kOk;
}

}  // namespace

Verb backtest_verb() {
  return {
      .name = "backtest",
      .summary = "Compare predictions with published training runs",
      .description =
          "Prices every row of a CSV file of published runs and compares step time, memory, "
          "out-of-memory verdicts and rankings of layouts with what was measured; calibration and "
          "held-out rows apart, beside a baseline of constant utilisation. Rows that do not say "
          "enough are listed, never guessed at.",
      .examples = {{"lockstep backtest published-runs.csv", "a table of errors per source"},
                   {"lockstep backtest published-runs.csv --svg scatter.svg --report accuracy.md",
                    "a picture and a page"},
                   {"lockstep backtest published-runs.csv --adapt 0,1,2,4",
                    "what knowing some runs of a source is worth"}},
      .options =
          {text("svg", "FILE", "Write predicted against measured step times as a picture"),
           text("report", "FILE", "Write a page with all tables, in Markdown"),
           text("rows", "FILE", "Write every row with the terms of its predicted step, as CSV"),
           text("excluded", "FILE", "Rules for rows outside the model; built in by default"),
           text("adapt", "K[,K..]",
                "Draw K rows of each source, learn from them and predict its others, see "
                "docs/observed.md"),
           integer("draws", "N", "With --adapt: draws of each K [default: 200]").between(1, 100000),
           integer("seed", "N", "With --adapt: of the draws [default: 1]").at_least(0)},
      .positionals = {{.name = "FILE", .help = "CSV file of published runs"}},
      .run = run_backtest};
}

}  // namespace lockstep::cli
