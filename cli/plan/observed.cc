#include "cli/plan/observed.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "cli/plan/request.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "lockstep/base/csv.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/config/suggest.h"
#include "lockstep/model/user_model.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::cli {
namespace {

const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = {"layout", "step_s",       "model", "cluster",
                                                 "seq",    "global_batch", "dtype"};
  return names;
}

// One record of the file and what it asks; what the question refers to lives as long.
class ObservedRow {
 public:
  ObservedRow(const PlanRequest& request, std::string place,
              std::map<std::string, std::string> cells, config::Report& report)
      : request_(request), place_(std::move(place)), cells_(std::move(cells)), report_(report) {}

  // The layout as it would be priced, and its measured seconds; nothing with errors in the report.
  std::optional<std::pair<planner::Finalist, double>> timed() {
    const double step = positive("step_s", 0);
    model_ = request_.model, cluster_ = request_.cluster;
    if (!cell("model").empty()) take("model", model_, model::find_model);
    if (!cell("cluster").empty()) take("cluster", cluster_, cluster::find_cluster);
    if (is_good_) ask();
    if (!is_good_) return std::nullopt;
    config::Report found;
    std::optional<planner::Finalist> priced = price(found);
    refuse_all("layout", found);
    if (!priced) return std::nullopt;
    // A wrong unit or a wrong column; nothing could be learned from it.
    constexpr double kMost = 20;
    if (step > kMost * priced->seconds || step < priced->seconds / kMost) {
      refuse(Code::kBadRunTable,
             strf("column step_s: %g s, where %.3g s are predicted", step, priced->seconds),
             strf("seconds of a step, within %g times of what is predicted", kMost));
      return std::nullopt;
    }
    return std::pair{*std::move(priced), step};
  }

 private:
  const std::string& cell(const std::string& column) { return cells_[column]; }

  void refuse(Code code, const std::string& message, const std::string& help) {
    is_good_ = false;
    report_.add(Error{code, join_parts(place_, ": ", message), help});
  }

  void refuse_all(const char* column, const config::Report& found) {
    for (const config::Diagnostic& one : found.diagnostics())
      if (one.severity == config::Severity::kError)
        refuse(one.code, join_parts("column ", column, ": ", one.message), one.help);
  }

  template <class Value, class Find>
  void take(const char* column, Value& into, Find find) {
    config::Report found;
    if (auto value = find(cell(column), found)) into = *std::move(value);
    refuse_all(column, found);
  }

  // `otherwise` where the cell is empty; 0: it may not be.
  double positive(const char* column, double otherwise) {
    const std::string& text = cell(column);
    if (text.empty() && otherwise > 0) return otherwise;
    const auto value = number_in<double>(text);
    if (value && std::isfinite(*value) && *value > 0) return *value;
    refuse(Code::kBadRunTable,
           join_parts("column ", column, ": `", text, "` is no positive number"),
           "a number such as 12.5");
    return 1;
  }

  std::int64_t whole(const char* column, std::int64_t otherwise) {
    const std::string& text = cell(column);
    if (text.empty()) return otherwise;
    const auto value = number_in<std::int64_t>(text);
    if (value && *value > 0 && *value < 2147483648) return *value;
    refuse(Code::kBadRunTable, join_parts("column ", column, ": `", text, "` is no whole number"),
           "a number of 1 or more, without separators");
    return 1;
  }

  void ask() {
    question_.precision = request_.question.precision;
    question_.headroom = request_.question.headroom;
    shape_ = cost::shape_of(model_);
    question_.shape = &shape_, question_.cluster = &cluster_;
    question_.rates = &cluster::rates_of(cluster_.device);
    question_.devices = cluster_.count;
    question_.seq = whole("seq", request_.question.seq);
    question_.global_batch = whole("global_batch", request_.question.global_batch);
    const std::string& dtype = cell("dtype");
    if (dtype == "bf16") question_.precision = cost::Precision::kBf16;
    if (dtype == "fp8") question_.precision = cost::Precision::kFp8;
    if (!dtype.empty() && dtype != "bf16" && dtype != "fp8")
      refuse(Code::kBadRunTable, join_parts("column dtype: `", dtype, "` is no type of products"),
             "bf16 or fp8");
    if (question_.precision == cost::Precision::kFp8 && !cluster_.device.peak_fp8.known())
      refuse(Code::kConflict,
             join_parts("column dtype: fp8, but ", cluster_.device.name, " has no fp8 products"),
             "bf16, or another cluster");
  }

  std::optional<planner::Finalist> price(config::Report& found) {
    auto read = parse_own(cell("layout"), "the layout");
    if (!read.ok()) return found.add(read.error()), std::nullopt;
    spec::Layout& layout = read->own.layout;
    // A run had some value of each: what the best is would be another run.
    const auto need = [&](bool is_said, const char* example) {
      if (!is_said)
        found.add(Error{Code::kBadRunTable,
                        join_parts("`", cells_["layout"], "` does not say ", example),
                        "a run that was timed had one; say which"});
    };
    need(read->says("zero"), "zero, as zero1");
    need(read->names_microbatch || layout.microbatches, "microbatch, as microbatch=1");
    need(layout.degrees.pp == 1 || read->says(layout.schedule + " "), "its schedule, as 1f1b");
    if (!found.ok()) return std::nullopt;
    if (!read->has_dp) {
      const auto left = spec::data_degree(layout.degrees, cluster_);
      if (!left.ok()) return found.add(left.error()), std::nullopt;
      layout.degrees.dp = *left;
    }
    check_own(read->own, model_, question_, found);
    if (!found.ok()) return std::nullopt;
    auto timed = planner::time_layout(question_, layout, read->own.microbatch);
    if (!timed.ok()) return found.add(timed.error()), std::nullopt;
    return *std::move(timed);
  }

  const PlanRequest& request_;
  std::string place_;
  std::map<std::string, std::string> cells_;
  config::Report& report_;
  bool is_good_ = true;
  model::ModelConfig model_;
  cluster::Cluster cluster_;
  cost::ModelShape shape_;
  planner::Question question_;
};

Error bad_file(std::string message, std::string help) {
  return {Code::kBadRunTable, std::move(message), std::move(help)};
}

// The first record: names of columns, each once.
bool check_columns(const std::vector<std::string>& names, const std::string& file,
                   config::Report& report) {
  const std::vector<std::string>& known = column_names();
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end() || std::ranges::count(names, name) > 1)
      report.add(bad_file(join_parts(file, " line 1: column `", name, "` is unknown or twice"),
                          config::did_you_mean(name, known, config::there_are(known))));
  for (const char* needed : {"layout", "step_s"})
    if (std::ranges::find(names, needed) == names.end())
      report.add(bad_file(join_parts(file, " line 1: column `", needed, "` is missing"),
                          "the first line names the columns: layout,step_s"));
  return report.ok();
}

// "+12 % +- 6".
std::string change_text(const observe::Belief& belief) {
  return strf("%+.0f %% +- %.0f", 100 * (belief.p50() - 1), 100 * belief.deviation);
}

}  // namespace

std::optional<Observed> Observed::read(const std::string& file, const PlanRequest& request,
                                       config::Report& report) {
  const Result<std::string> content = read_text(file);
  if (!content.ok()) return report.add(content.error()), std::nullopt;
  std::string_view text = *content;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  int line = 1;
  const std::vector<std::string> names = take_csv_record(text, line);
  if (!check_columns(names, file, report)) return std::nullopt;
  Observed made;
  made.file_ = file;
  std::vector<observe::Observation> runs;
  while (!text.empty()) {
    const int first = line;
    const std::vector<std::string> cells = take_csv_record(text, line);
    if (cells.size() == 1 && cells.front().empty()) continue;
    const std::string place = strf("%s line %d", file.c_str(), first);
    if (cells.size() != names.size()) {
      report.add(bad_file(join_parts(place, " has ", cells.size(), " cells, but there are ",
                                     names.size(), " columns"),
                          "cells with commas need quotes; a layout may have spaces instead"));
      continue;
    }
    std::map<std::string, std::string> record;
    for (std::size_t i = 0; i < names.size(); ++i) record[names[i]] = cells[i];
    ObservedRow row(request, place, std::move(record), report);
    const auto timed = row.timed();
    if (!timed) continue;
    const auto& [finalist, measured] = *timed;
    made.features_.push_back(
        observe::time_features(finalist.priced.request, finalist.priced.price.time));
    made.runs_.push_back(
        {first, to_text(planner::layout_of(finalist)), measured, finalist.seconds});
    runs.push_back({made.features_.back(), std::log(measured / finalist.seconds)});
  }
  if (runs.empty() && report.ok())
    report.add(bad_file(join_parts(file, " has no runs"), "a line for each, after the columns"));
  if (runs.size() > observe::kMostRuns)
    report.add(bad_file(join_parts(file, " has ", runs.size(), " runs"),
                        join_parts("at most ", observe::kMostRuns)));
  if (!report.ok()) return std::nullopt;
  made.learned_ = std::make_shared<observe::Posterior>(observe::time_prior(), std::move(runs));
  return made;
}

observe::Belief Observed::correct(planner::Finalist& finalist) const {
  cost::Price& price = finalist.priced.price;
  const observe::Belief belief =
      learned_->of(observe::time_features(finalist.priced.request, price.time));
  const double factor = belief.p50();
  for (const cost::StepTerm& term : cost::kStepTerms) price.time.*term.seconds *= factor;
  finalist.seconds *= factor, finalist.bubble *= factor, finalist.closed_form *= factor;
  if (finalist.by_units) *finalist.by_units *= factor;
  price.mfu_causal /= factor, price.mfu_full /= factor, price.tokens_per_s /= factor;
  return belief;
}

std::string Observed::rows_of(std::size_t part) const {
  std::vector<std::pair<double, int>> weights;
  for (std::size_t i = 0; i < runs_.size(); ++i)
    weights.emplace_back(-features_[i].shares[part] * learned_->trust(i), runs_[i].line);
  std::ranges::sort(weights);
  std::vector<std::string> lines;
  for (const auto& [weight, line] : weights)
    if (weight <= 0.5 * weights.front().first && lines.size() < 3)
      lines.push_back(std::to_string(line));
  return (lines.size() > 1 ? "lines " : "line ") + listed(lines);
}

std::vector<std::string> Observed::lines() const {
  const observe::Posterior::Learned level = learned_->level();
  std::vector<std::string> said = {join_parts(
      "times follow ", counted(static_cast<std::int64_t>(runs_.size()), "run"), " of ", file_,
      ": all steps ", change_text(level.now), ", was 0 +- ", strf("%.0f", 100 * level.before))};
  // What is known clearly better than before, or differs by more than its band.
  for (std::size_t i = 0; i < observe::kParts; ++i) {
    const auto [before, now] = learned_->part(i);
    if (now.deviation < 0.8 * before || std::abs(now.mean) > now.deviation)
      said.push_back(join_parts(observe::kTimeParts[i], " ", change_text(now), ", was 0 +- ",
                                strf("%.0f", 100 * before), "; from ", rows_of(i)));
  }
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (learned_->trust(i) < observe::Posterior::kContradicts)
      said.push_back(strf(
          "line %d contradicts the others: %s took %s, they say %s; it counts for "
          "%.0f %%",
          runs_[i].line, runs_[i].layout.c_str(), to_text(Seconds{runs_[i].measured_s}).c_str(),
          to_text(Seconds{runs_[i].predicted_s * learned_->of(features_[i]).p50()}).c_str(),
          100 * learned_->trust(i)));
  return said;
}

Json Observed::json() const {
  Json runs = Json::array();
  for (std::size_t i = 0; i < runs_.size(); ++i)
    runs.push(
        Json::object({{"line", runs_[i].line},
                      {"layout", runs_[i].layout},
                      {"measured_s", runs_[i].measured_s},
                      {"predicted_s", runs_[i].predicted_s},
                      {"learned_s", runs_[i].predicted_s * learned_->of(features_[i]).p50()},
                      {"trust", learned_->trust(i)},
                      {"contradicts", learned_->trust(i) < observe::Posterior::kContradicts}}));
  const auto learned = [](const char* name, const observe::Posterior::Learned& of) {
    return Json::object({{"part", name},
                         {"factor", of.now.p50()},
                         {"deviation", of.now.deviation},
                         {"before_deviation", of.before}});
  };
  Json parts = Json::array({learned("all", learned_->level())});
  for (std::size_t i = 0; i < observe::kParts; ++i)
    parts.push(learned(observe::kTimeParts[i], learned_->part(i)));
  return Json::object({{"file", file_}, {"runs", std::move(runs)}, {"learned", std::move(parts)}});
}

}  // namespace lockstep::cli
