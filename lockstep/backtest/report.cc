#include "lockstep/backtest/report.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/backtest/unseen.h"
#include "lockstep/base/check.h"
#include "lockstep/base/csv.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/observe/memory_risk.h"

namespace lockstep::backtest {
namespace {

// Fractions with four digits after the point: more would be noise.
Json fraction(double value) {
  return Json(static_cast<double>(static_cast<long long>(value * 1e4 + (value < 0 ? -0.5 : 0.5))) /
              1e4);
}

Json to_json(const Summary& summary) {
  return Json::object({{"rows", summary.rows},
                       {"median", fraction(summary.median)},
                       {"p90", fraction(summary.p90)},
                       {"bias", fraction(summary.bias)}});
}

Json split_json(const Scores& scores, int split) {
  Json kinds = Json::object();
  for (const auto& [kind, summary] : scores.memory_kinds[split]) kinds.set(kind, to_json(summary));
  return Json::object({{"step_time", to_json(scores.time[split])},
                       {"baseline", to_json(scores.baseline[split])},
                       {"memory", to_json(scores.memory[split])},
                       {"memory_kinds", std::move(kinds)}});
}

// Of no predictions there are no figures.
void add_summary(const AdaptSummary& of, Json& into) {
  if (of.error.rows == 0) return void(into.set("rows", 0));
  const Json error = to_json(of.error);
  for (const Json::Member& member : error.members()) into.set(member.key, member.value);
  into.set("p50", fraction(of.p50)).set("p95", fraction(of.p95));
}

void add_figures(const AdaptFigures& figures, Json& into) {
  const auto named = [](const char* key, const auto& rows) {
    return Json::list(rows, [&](const auto& row) {
      Json one = Json::object({{key, row.first}});
      add_summary(row.second, one);
      return one;
    });
  };
  add_summary(figures.all, into);
  into.set("sources", named("source", figures.sources));
  if (!figures.kinds.empty()) into.set("kinds", named("kind", figures.kinds));
  into.set("left_out", Json::list(figures.left_out, [](const auto& one) {
             return Json::object({{"source", one.first}, {"rows", one.second}});
           }));
}

std::string percent(double value) { return strf("%.1f", 100 * value); }

std::string cells(const Summary& summary) {
  if (summary.rows == 0) return "| 0 | | | ";
  return strf("| %d | %s | %s | %+.1f ", summary.rows, percent(summary.median).c_str(),
              percent(summary.p90).c_str(), 100 * summary.bias);
}

std::string source_table(const Scores& scores, bool heldout) {
  std::string text =
      "| source | rows | median | p90 | bias | baseline median | memory rows | memory median |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const SourceScore& one : scores.sources) {
    if (one.heldout != heldout || one.time.rows + one.memory.rows == 0) continue;
    text += "| " + one.source + " " + cells(one.time) + "| " +
            (one.baseline.rows > 0 ? percent(one.baseline.median) : "") + " | " +
            (one.memory.rows > 0 ? std::to_string(one.memory.rows) : "") + " | " +
            (one.memory.rows > 0 ? percent(one.memory.median) : "") + " |\n";
  }
  return text;
}

std::string reasons_table(const Scores& scores, bool excluded) {
  std::map<std::string, int> reasons;
  for (const ScoredRun& row : scores.runs) {
    const std::string& reason = excluded ? row.excluded : row.not_priced;
    if (!reason.empty() && (excluded || row.excluded.empty()))
      ++reasons[row.run->text("source") + " | " + reason];
  }
  std::string text = "| source | reason | rows |\n|---|---|---|\n";
  for (const auto& [reason, rows] : reasons) text += join_parts("| ", reason, " | ", rows, " |\n");
  return text;
}

std::string sweeps_table(const Scores& scores) {
  std::string text =
      "| sweep | split | rows | regret of the first choice | rank correlation "
      "|\n|---|---|---|---|---|\n";
  for (const Sweep& sweep : scores.sweeps)
    text += "| " + sweep.name + " | " + (sweep.heldout ? "held out" : "calibration") +
            strf(" | %d | %s %% | %.2f |\n", sweep.rows, percent(sweep.regret).c_str(),
                 sweep.correlation);
  return text;
}

std::string rates_table() {
  std::string text = "| term | ampere | hopper | blackwell |\n|---|---|---|---|\n";
  const auto rates = [](const char* name) {
    const auto rows = cluster::catalog();
    const auto row = std::ranges::find(
        rows, name, [](const cluster::CatalogRow& each) { return each.device.name; });
    LS_CHECK(row != rows.end(), "no device ", name);
    return &cluster::rates_of(row->device);
  };
  const cluster::DeviceRates* columns[] = {rates("a100"), rates("h100"), rates("b200")};
  for (std::size_t i = 0; i < cluster::kNumTerms; ++i) {
    text += "| " + std::string(to_text(static_cast<cluster::Term>(i)));
    for (const cluster::DeviceRates* family : columns) {
      const cluster::Rate& rate = family->terms[i];
      text += strf(" | %.3g +-%.0f %%%s", rate.value, 100 * rate.band,
                   rate.source.starts_with("fitted")      ? ""
                   : rate.source.starts_with("published") ? " (published)"
                                                          : " (held)");
    }
    text += " |\n";
  }
  return text;
}

// Of a split, those whose regret is within the limit.
int sweeps_in(const Scores& scores, bool heldout,
              double limit = std::numeric_limits<double>::infinity()) {
  return static_cast<int>(std::ranges::count_if(scores.sweeps, [&](const Sweep& sweep) {
    return sweep.heldout == heldout && sweep.regret <= limit;
  }));
}

struct Wins {
  int better = 0, all = 0;
};

// Sources whose median beats the baseline's.
Wins wins_of(const Scores& scores) {
  Wins wins;
  for (const SourceScore& one : scores.sources) {
    if (!one.heldout || one.time.rows == 0 || one.baseline.rows == 0) continue;
    ++wins.all;
    wins.better += one.time.median < one.baseline.median;
  }
  return wins;
}

std::string headline(const Scores& scores) {
  const Wins wins = wins_of(scores);
  std::string text = "| | rows | median | p90 | bias |\n|---|---|---|---|---|\n";
  text += "| step time, held out " + cells(scores.time[1]) + "|\n";
  text += "| constant utilisation, held out " + cells(scores.baseline[1]) + "|\n";
  text += "| memory, held out " + cells(scores.memory[1]) + "|\n";
  text += "| step time, calibration " + cells(scores.time[0]) + "|\n";
  text += "| memory, calibration " + cells(scores.memory[0]) + "|\n";
  text += "| step time, held out but excluded " + cells(scores.excluded_time) + "|\n\n";
  text += strf("Better than the baseline on %d of %d held-out sources. ", wins.better, wins.all);
  text +=
      strf("Out of memory: %d of %d verdicts right (%d predicted, %d missed, %d false alarms). ",
           scores.oom.right, scores.oom.total, scores.oom.hits, scores.oom.misses,
           scores.oom.false_alarms);
  text += strf(
      "The first choice lies within 5 %% of the best listed layout in %d of %d held-out sweeps and "
      "%d of %d calibration sweeps.\n",
      sweeps_in(scores, true, 0.05), sweeps_in(scores, true), sweeps_in(scores, false, 0.05),
      sweeps_in(scores, false));
  return text;
}

std::string unseen_table() {
  std::string text =
      "Held-out sources were looked at, if seldom; these never were (`backtest/unseen.h`). They "
      "say what to\nexpect of a new source. Errors within one are alike, so a run of your own "
      "tells most.\n\n| runs | sources | timed | median | p90 | constant utilisation | memory "
      "rows | memory median | out of memory: right | missed | false alarms |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const UnseenSet& set : kUnseen)
    text += strf("| %d | %d | %d | %.1f | %.1f | %.1f | %d | %.1f | %d of %d | %d | %d |\n",
                 set.runs, set.sources, set.timed, set.median, set.p90, set.constant, set.sized,
                 set.memory, set.right, set.verdicts, set.missed, set.false_alarms);
  return text;
}

// Of how full a device is by prediction: how many ran out, and how many the distribution says.
std::string verdicts_table(const std::vector<Verdict>& verdicts) {
  if (verdicts.empty()) return "No source says what ran out of memory.\n";
  const observe::Belief need = likeliest_need(verdicts);
  std::string text = strf(
      "What is needed is what is predicted times e^x, where x is normal with mean %.3f and "
      "deviation "
      "%.3f: the\nlikeliest under these verdicts, on which the limit itself was fitted.\n\n"
      "| needed of a device, predicted | runs | ran out | percent | expected "
      "|\n|---|---|---|---|---|\n",
      need.mean, need.deviation);
  constexpr double kEdges[] = {0, 0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1e9};
  for (std::size_t i = 0; i + 1 < std::size(kEdges); ++i) {
    double runs = 0, ran_out = 0, expected = 0;
    for (const Verdict& one : verdicts) {
      if (one.full < kEdges[i] || one.full >= kEdges[i + 1]) continue;
      ++runs, ran_out += one.ran_out, expected += observe::out_of_memory(need, one.full, 1);
    }
    if (runs == 0) continue;
    text += kEdges[i + 1] < 1e9 ? strf("| %.2f to %.2f ", kEdges[i], kEdges[i + 1])
                                : strf("| %.2f and more ", kEdges[i]);
    text += strf("| %.0f | %.0f | %.1f | %.1f |\n", runs, ran_out, 100 * ran_out / runs,
                 100 * expected / runs);
  }
  return text;
}

std::string number(std::optional<double> value) { return value ? strf("%.6g", *value) : ""; }

std::string gigabytes(std::optional<double> bytes) {
  return bytes ? strf("%.2f", *bytes / 1e9) : "";
}

void add_line(const ScoredRun& row, std::string& csv) {
  const bool is_priced = row.not_priced.empty();
  const auto priced = [&](double value) {
    return is_priced ? std::optional<double>(value) : std::nullopt;
  };
  const cost::Price& price = row.price;
  csv += row.run->text("id") + "," + csv_quoted(row.run->text("source")) +
         (row.run->is_heldout() ? ",held out," : ",calibration,") + row.run->text("outcome") +
         (row.in_headline ? ",1," : ",0,") + number(row.seconds) + "," +
         number(priced(price.time.total())) + "," + number(row.time_error);
  for (const cost::StepTerm& term : cost::kStepTerms)
    csv += "," + number(priced(price.time.*term.seconds));
  csv += "," + gigabytes(row.bytes);
  for (const std::string& name : cost::kReadings.names())
    csv += "," + gigabytes(priced(read_bytes(price.memory, *cost::kReadings.find(name))));
  for (const double bytes : {device_bytes(price.memory), price.usable})
    csv += "," + gigabytes(priced(bytes));
  csv += "," + number(priced(price.fits ? 1 : 0)) + ",";
  const std::string& reason = row.excluded.empty() ? row.not_priced : row.excluded;
  csv += (reason.empty() ? "" : csv_quoted(reason)) + "\n";
}

}  // namespace

Json to_json(const Scores& scores) {
  const Wins wins = wins_of(scores);
  Json sources = Json::array();
  for (const SourceScore& one : scores.sources)
    sources.push(Json::object({{"source", one.source},
                               {"split", one.heldout ? "heldout" : "calibration"},
                               {"step_time", to_json(one.time)},
                               {"baseline", to_json(one.baseline)},
                               {"memory", to_json(one.memory)}}));
  Json sweeps = Json::array();
  for (const Sweep& sweep : scores.sweeps)
    sweeps.push(Json::object({{"sweep", sweep.name},
                              {"split", sweep.heldout ? "heldout" : "calibration"},
                              {"rows", sweep.rows},
                              {"regret", fraction(sweep.regret)},
                              {"rank_correlation", fraction(sweep.correlation)}}));
  Json terms = Json::object();
  for (const TermScore& term : scores.terms) terms.set(term.term, to_json(term.time));
  Json unpriced = Json::array();
  for (const ScoredRun& row : scores.runs)
    if (!row.not_priced.empty())
      unpriced.push(Json::object({{"id", row.run->text("id")}, {"reason", row.not_priced}}));
  return Json::object(
      {{"schema", "lockstep.backtest/2"},
       {"error", "ln(predicted / measured); median and p90 of its size, as fractions"},
       {"rows", static_cast<std::int64_t>(scores.runs.size())},
       {"heldout", split_json(scores, 1)},
       {"calibration", split_json(scores, 0)},
       {"excluded_heldout_step_time", to_json(scores.excluded_time)},
       {"oom", Json::object({{"right", scores.oom.right},
                             {"total", scores.oom.total},
                             {"predicted", scores.oom.hits},
                             {"missed", scores.oom.misses},
                             {"false_alarms", scores.oom.false_alarms},
                             {"fitting", scores.oom.passes}})},
       {"ranking", Json::object({{"heldout_within_5_percent", sweeps_in(scores, true, 0.05)},
                                 {"heldout_sweeps", sweeps_in(scores, true)},
                                 {"calibration_within_5_percent", sweeps_in(scores, false, 0.05)},
                                 {"calibration_sweeps", sweeps_in(scores, false)}})},
       {"baseline_beaten", Json::object({{"sources", wins.all}, {"better", wins.better}})},
       {"baseline_from_file", scores.baseline_from_file},
       {"sources", std::move(sources)},
       {"sweeps", std::move(sweeps)},
       {"terms", std::move(terms)},
       {"not_priced", std::move(unpriced)}});
}

Json to_json(const std::vector<AdaptScore>& scores, const AdaptProtocol& protocol) {
  return Json::list(scores, [&](const AdaptScore& one) {
    Json made = Json::object({{"k", one.known},
                              {"draws", one.known == 0 ? 1 : protocol.draws},
                              {"seed", static_cast<std::int64_t>(protocol.seed)}});
    add_figures(one.time, made);
    Json memory = Json::object();
    add_figures(one.memory, memory);
    return made.set("memory", std::move(memory));
  });
}

std::string accuracy_page(const Scores& scores, const std::string& file) {
  std::string text = "# Accuracy of predictions\n\n";
  text += "Written by `lockstep backtest " + file + " --report docs/accuracy.md`; do not edit.\n\n";
  text +=
      "Every row is a training run that somebody else measured and published. An error is\n"
      "ln(predicted / measured) in percent; median and p90 are of its size, bias is its signed "
      "median. Headlines\ncount rows of grade A and B that ran. Rates were fitted on calibration "
      "rows alone, term by term\n(`bench/fit_rates.cc`); rows outside the model are excluded by "
      "`bench/backtest/excluded.toml`, which was\nfixed before any held-out row was priced. The "
      "held-out figure is not clean: held-out rows were looked at\nwhile the model's structure "
      "was worked on. How often, and what was changed, is in\n"
      "[bench/backtest](../bench/backtest/README.md).\n\n## Headline\n\n";
  text += headline(scores);
  text += "\n## Sources never looked at\n\n" + unseen_table();
  text += "\n## Held-out sources\n\n" + source_table(scores, true);
  text += "\n## Calibration sources\n\n" + source_table(scores, false);
  text +=
      "\n## Where held-out errors are\n\nRows in which a term's share of the predicted step is in "
      "the top quarter.\n\n";
  text += "| term | rows | median | p90 | bias |\n|---|---|---|---|---|\n";
  for (const auto& [term, time] : scores.terms) text += "| " + term + " " + cells(time) + "|\n";
  text +=
      "\n## Memory by kind of reading\n\n| reading | split | rows | median | p90 | bias "
      "|\n|---|---|---|---|---|---|\n";
  for (const int split : {0, 1})
    for (const auto& [kind, summary] : scores.memory_kinds[split])
      text += "| " + kind + " | " + (split == 1 ? "held out" : "calibration") + " " +
              cells(summary) + "|\n";
  text += "\n## Out of memory\n\n" + verdicts_table(scores.oom.verdicts);
  text += "\n## Rankings\n\n" + sweeps_table(scores);
  text +=
      "\n## Rates\n\nShares of the data sheet with the band each is known within; held: not "
      "determined by the rows, near a prior with a source.\n\n" +
      rates_table();
  text += "\n## Rows left out\n\nOutside the model:\n\n" + reasons_table(scores, true);
  text += "\nNot priced, because the row does not say enough:\n\n" + reasons_table(scores, false);
  return text;
}

std::string rows_csv(const Scores& scores) {
  std::string csv = "id,source,split,outcome,counted,measured_s,predicted_s,error";
  for (const cost::StepTerm& term : cost::kStepTerms) csv += strf(",%s_s", term.name);
  csv += ",measured_gb,allocated_gb,reserved_gb,shown_gb,needed_gb,has_gb,fits,reason\n";
  for (const ScoredRun& row : scores.runs) add_line(row, csv);
  return csv;
}

}  // namespace lockstep::backtest
