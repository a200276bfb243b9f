#include "lockstep/backtest/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/observe/memory_risk.h"

namespace lockstep::backtest {
namespace {

std::string class_of(const cost::PriceRequest& r) {
  return std::string(r.rates->family) + (r.precision == cost::Precision::kFp8 ? "/8" : "/16") +
         (r.drop.block ? "/full" : "");
}

// Seconds at full utilisation.
double ideal_seconds(const cost::PriceRequest& r) {
  const cost::ForwardFlops flops = forward_flops(*r.shape, r.seq);
  return 3 * (flops.matmul + flops.attention_full) * static_cast<double>(r.global_batch) * r.seq /
         (r.devices() * peak_of(r, cost::Precision::kBf16));
}

// The baseline a planner has to beat: one constant utilisation per family of devices, width of
// products and whether blocks are made again, the median over calibration rows. FLOPs count full
// attention, against the 16-bit peak.
class Baseline {
 public:
  // A calibration row.
  void add(const cost::PriceRequest& request, double seconds) {
    if (request.rates->calibrated)
      utilisations_[class_of(request)].push_back(ideal_seconds(request) / seconds);
  }

  bool empty() const { return utilisations_.empty(); }

  // Takes medians, or the constants of the published calibration rows when none were added.
  void finish() {
    constants_.clear();
    for (auto& [name, values] : utilisations_) {
      std::ranges::sort(values);
      constants_[name] = values[values.size() / 2];
    }
    // Medians of the calibration split of the published runs, for files that hold none.
    if (constants_.empty())
      constants_ = {{"ampere/16", 0.5101},   {"ampere/16/full", 0.3235}, {"blackwell/16", 0.3738},
                    {"blackwell/8", 0.6153}, {"hopper/16", 0.4948},      {"hopper/16/full", 0.4026},
                    {"hopper/8", 0.7424},    {"hopper/8/full", 0.2847}};
  }

  // Seconds of a step; nothing for a class without calibration rows.
  std::optional<double> predict(const cost::PriceRequest& request) const {
    const auto found = constants_.find(class_of(request));
    if (found == constants_.end() || !request.rates->calibrated) return std::nullopt;
    return ideal_seconds(request) / found->second;
  }

 private:
  std::map<std::string, std::vector<double>> utilisations_;
  std::map<std::string, double> constants_;
};

double predicted_bytes(const Priced& priced, const PublishedRun& run) {
  const double most = run.text("outcome") == "ok"
                          ? cost::capacity_bytes(priced.request.cluster->device)
                          : std::numeric_limits<double>::infinity();
  return read_bytes(priced.price.memory, reading_of(run), most);
}

void price_row(ScoredRun& row) {
  auto request = request_of(*row.run);
  row.seconds = row.run->measured_seconds();
  row.bytes = row.run->measured_bytes();
  if (!request.ok()) {
    row.not_priced = request.error().message;
    return;
  }
  const Priced priced = price_run(*request);
  row.asked = *std::move(request);
  row.request = priced.request;
  row.price = priced.price;
  if (row.seconds && row.run->text("outcome") == "ok")
    row.time_error = std::log(priced.price.time.total() / *row.seconds);
  if (row.bytes) row.memory_error = std::log(predicted_bytes(priced, *row.run) / *row.bytes);
}

void exclude_row(const std::vector<Exclusion>& rules, ScoredRun& row) {
  for (const Exclusion& rule : rules) {
    if (!rule.matches(*row.run)) continue;
    if (row.excluded.empty()) row.excluded = rule.reason;
    if (!rule.time_only) row.excluded_memory = true;
  }
  const std::string& grade = row.run->text("grade");
  row.in_headline = row.time_error && row.excluded.empty() && (grade == "A" || grade == "B");
}

bool counts_for_memory(const ScoredRun& row) { return row.memory_error && !row.excluded_memory; }

// Of one error in the rows that `counts` takes and that have it.
template <class Counts>
Summary summary_of(const Scores& scores, std::optional<double> ScoredRun::* error, Counts counts) {
  std::vector<double> errors;
  for (const ScoredRun& row : scores.runs)
    if (row.*error && counts(row)) errors.push_back(*(row.*error));
  return summarize(errors);
}

template <class Here>
void summarize_rows(const Scores& scores, Here here, Summary& time, Summary& baseline,
                    Summary& memory) {
  const auto in_headline = [&](const ScoredRun& row) { return here(row) && row.in_headline; };
  time = summary_of(scores, &ScoredRun::time_error, in_headline);
  baseline = summary_of(scores, &ScoredRun::baseline_error, in_headline);
  memory = summary_of(scores, &ScoredRun::memory_error,
                      [&](const ScoredRun& row) { return here(row) && !row.excluded_memory; });
}

void score_sources(Scores& scores) {
  std::vector<std::string> names;
  for (const ScoredRun& row : scores.runs)
    if (std::ranges::find(names, row.run->text("source")) == names.end())
      names.push_back(row.run->text("source"));
  for (const std::string& name : names) {
    SourceScore one;
    one.source = name;
    const auto here = [&](const ScoredRun& row) { return row.run->text("source") == name; };
    one.heldout = std::ranges::find_if(scores.runs, here)->run->is_heldout();
    summarize_rows(scores, here, one.time, one.baseline, one.memory);
    scores.sources.push_back(std::move(one));
  }
}

void score_memory_kinds(Scores& scores) {
  std::map<std::string, std::vector<double>> kinds[2];
  for (const ScoredRun& row : scores.runs)
    if (counts_for_memory(row))
      kinds[row.run->is_heldout() ? 1 : 0][row.run->text("mem_kind")].push_back(*row.memory_error);
  for (const int split : {0, 1})
    for (const auto& [kind, errors] : kinds[split])
      scores.memory_kinds[split].emplace_back(kind, summarize(errors));
}

// Sources that report running out of memory at all: elsewhere only successes were published.
void score_oom(Scores& scores) {
  std::vector<std::string> sources;
  for (const ScoredRun& row : scores.runs)
    if (row.run->text("outcome") == "oom") sources.push_back(row.run->text("source"));
  for (const ScoredRun& row : scores.runs) {
    const bool counts = row.not_priced.empty() && !row.excluded_memory &&
                        std::ranges::find(sources, row.run->text("source")) != sources.end();
    if (!counts) continue;
    const bool is_oom = row.run->text("outcome") == "oom", predicted = !row.price.fits;
    ++(is_oom ? (predicted ? scores.oom.hits : scores.oom.misses)
              : (predicted ? scores.oom.false_alarms : scores.oom.passes));
    scores.oom.verdicts.push_back({device_bytes(row.price.memory) / row.price.usable, is_oom});
  }
  scores.oom.right = scores.oom.hits + scores.oom.passes;
  scores.oom.total = scores.oom.right + scores.oom.misses + scores.oom.false_alarms;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    double below = 0, equal = 0;
    for (const double other : values) below += other < value, equal += other == value;
    ranks.push_back(below + (equal - 1) / 2);
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size()), mean = (n - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

void score_sweeps(Scores& scores) {
  std::map<std::string, std::vector<const ScoredRun*>> groups;
  for (const ScoredRun& row : scores.runs) {
    if (!row.time_error || !row.excluded.empty()) continue;
    std::string key = row.run->text("source");
    for (const char* column : {"model", "gpu", "gpus", "seq_len", "global_batch", "layers"})
      key += " " + row.run->text(column);
    groups[key].push_back(&row);
  }
  for (const auto& [name, rows] : groups) {
    std::vector<double> predicted, measured;
    std::vector<std::string> layouts;
    for (const ScoredRun* row : rows) {
      predicted.push_back(row->price.time.total());
      measured.push_back(*row->seconds);
      std::string layout;
      for (const char* column : {"tp", "pp", "dp", "cp", "ep", "vpp", "micro_batch"})
        layout += row->run->text(column) + " ";
      if (std::ranges::find(layouts, layout) == layouts.end()) layouts.push_back(layout);
    }
    if (layouts.size() < 4) continue;
    const auto choice = std::ranges::min_element(predicted) - predicted.begin();
    const double best = *std::ranges::min_element(measured);
    scores.sweeps.push_back({name, rows.front()->run->is_heldout(), static_cast<int>(rows.size()),
                             measured[static_cast<std::size_t>(choice)] / best - 1,
                             correlation(ranks_of(predicted), ranks_of(measured))});
  }
}

void score_terms(Scores& scores) {
  using cost::StepTime;
  const std::pair<const char*, double StepTime::*> terms[] = {
      {"recomputation", &StepTime::recompute}, {"head and loss", &StepTime::head},
      {"tensor parallel", &StepTime::tensor},  {"context parallel", &StepTime::context},
      {"expert parallel", &StepTime::expert},  {"pipeline transfers", &StepTime::pipe},
      {"data parallel", &StepTime::data},      {"bubble", &StepTime::bubble},
      {"optimizer", &StepTime::optimizer}};
  for (const auto& [name, member] : terms) {
    std::vector<std::pair<double, double>> shares;
    for (const ScoredRun& row : scores.runs)
      if (row.in_headline && row.run->is_heldout())
        shares.emplace_back(row.price.time.*member / row.price.time.total(), *row.time_error);
    std::ranges::sort(shares, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<double> errors;
    for (std::size_t i = 0; i < shares.size() / 4; ++i)
      if (shares[i].first > 0.01) errors.push_back(shares[i].second);
    if (!errors.empty()) scores.terms.push_back({name, summarize(errors)});
  }
}

void score_splits(Scores& scores) {
  for (const int split : {0, 1})
    summarize_rows(
        scores, [&](const ScoredRun& row) { return row.run->is_heldout() == (split == 1); },
        scores.time[split], scores.baseline[split], scores.memory[split]);
  scores.excluded_time = summary_of(scores, &ScoredRun::time_error, [](const ScoredRun& row) {
    return !row.excluded.empty() && row.run->is_heldout();
  });
}

std::vector<std::string> texts_of(const config::Value& table, std::string_view key) {
  std::vector<std::string> texts;
  const config::Entry* entry = table.find(key);
  if (entry == nullptr) return texts;
  for (const config::Value& item : entry->value.items)
    if (item.kind == config::ValueKind::kString && !item.text.empty()) texts.push_back(item.text);
  return texts;
}

std::string text_of(const config::Value& table, std::string_view key) {
  const config::Entry* entry = table.find(key);
  return entry == nullptr ? std::string() : entry->value.text;
}

}  // namespace

// By steps to either side that are halved where none is likelier; the likelihood has one summit.
observe::Belief likeliest_need(const std::vector<Verdict>& verdicts) {
  const auto likelihood = [&](const observe::Belief& need) {
    double sum = 0;
    for (const Verdict& one : verdicts) {
      const double share = observe::out_of_memory(need, one.full, 1);
      sum += std::log(std::max(1e-12, one.ran_out ? share : 1 - share));
    }
    return sum;
  };
  observe::Belief best{0, 0.1};
  double most = likelihood(best);
  constexpr double kLeast = 1e-4;
  for (double step = 0.05; step > kLeast;) {
    const observe::Belief before = best;
    for (const auto& [mean, deviation] :
         {std::pair{-step, 0.0}, {step, 0.0}, {0.0, -step}, {0.0, step}}) {
      const observe::Belief other{before.mean + mean,
                                  std::max(kLeast, before.deviation + deviation)};
      if (const double its = likelihood(other); its > most) best = other, most = its;
    }
    if (best.mean == before.mean && best.deviation == before.deviation) step /= 2;
  }
  return best;
}

Summary summarize(const std::vector<double>& errors) {
  Summary summary;
  summary.rows = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  std::vector<double> sizes, values = errors;
  for (const double error : errors) sizes.push_back(std::abs(error));
  std::ranges::sort(sizes);
  std::ranges::sort(values);
  summary.median = sizes[(sizes.size() - 1) / 2];
  summary.p90 = sizes[(sizes.size() - 1) * 9 / 10];
  summary.bias = values[(values.size() - 1) / 2];
  return summary;
}

cost::Reading reading_of(const PublishedRun& run) {
  const std::string& kind = run.text("mem_kind");
  if (kind.starts_with("allocated")) return cost::Reading::kAllocated;
  // nanotron prints the allocator's reserve. Who else does not say looked at the device: an
  // allocator's figure is asked for by its name.
  return kind.starts_with("reserved") || is_nanotron(run) ? cost::Reading::kReserved
                                                          : cost::Reading::kShown;
}

Scores score(const RunTable& table, const std::vector<Exclusion>& exclusions) {
  Scores scores;
  Baseline baseline;
  for (const PublishedRun& run : table.rows) {
    ScoredRun row;
    row.run = &run;
    price_row(row);
    exclude_row(exclusions, row);
    scores.runs.push_back(std::move(row));
  }
  for (const ScoredRun& row : scores.runs)
    if (row.time_error && !row.run->is_heldout()) baseline.add(row.request, *row.seconds);
  scores.baseline_from_file = !baseline.empty();
  baseline.finish();
  for (ScoredRun& row : scores.runs)
    if (const auto seconds = row.time_error ? baseline.predict(row.request) : std::nullopt)
      row.baseline_error = std::log(*seconds / *row.seconds);
  score_splits(scores);
  score_sources(scores);
  score_memory_kinds(scores);
  score_oom(scores);
  score_sweeps(scores);
  score_terms(scores);
  return scores;
}

bool Exclusion::matches(const PublishedRun& run) const {
  const std::string& text = run.text(column);
  const auto any = [](const std::vector<std::string>& parts, auto test) {
    return std::ranges::any_of(parts, test);
  };
  return any(is, [&](const std::string& part) { return text == part; }) ||
         any(begins, [&](const std::string& part) { return text.starts_with(part); }) ||
         any(contains, [&](const std::string& part) { return says(run, column, part); });
}

Result<std::vector<Exclusion>> read_exclusions(const config::Document& document) {
  std::vector<Exclusion> rules;
  const config::Entry* tables = document.find("exclude");
  if (tables == nullptr) return rules;
  for (const config::Value& table : tables->value.items) {
    Exclusion rule{text_of(table, "column"),
                   texts_of(table, "is"),
                   texts_of(table, "begins"),
                   texts_of(table, "contains"),
                   text_of(table, "figures") == "time",
                   text_of(table, "reason")};
    const bool known = std::ranges::count(required_columns(), rule.column) > 0;
    if (!known || rule.reason.empty() ||
        (rule.is.empty() && rule.begins.empty() && rule.contains.empty()))
      return Error{Code::kBadRunTable,
                   "an [[exclude]] table for column `" + rule.column + "` is not complete",
                   "it needs a column of the runs, a reason, and one of is, begins, contains"};
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace lockstep::backtest
