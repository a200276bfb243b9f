#include "cli/plan/observed_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "cli/plan/request.h"
#include "cli/text_file.h"
#include "lockstep/base/csv.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/config/suggest.h"
#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/model/arch.h"
#include "lockstep/observe/run_log.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::cli {
namespace {

using Cells = std::map<std::string, std::string>;

const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = {"layout",     "step_s",   "log",          "model",
                                                 "cluster",    "seq",      "global_batch", "dtype",
                                                 "memory_gib", "memory_is"};
  return names;
}

std::string text_of(const Json& value) {
  return value.is_null() ? "" : value.is_text() ? value.as_text() : value.dump();
}

std::optional<model::ModelConfig> find_model(const std::string& name, config::Report& report) {
  auto found = hf::find_model(name, report);
  return found ? std::optional(std::move(found->model)) : std::nullopt;
}

// One record of the file and what it asks; what the question refers to lives as long.
class ObservedRow {
 public:
  ObservedRow(const PlanRequest& request, std::string place, Cells cells, config::Report& report)
      : request_(request), place_(std::move(place)), cells_(std::move(cells)), report_(report) {}

  // The layout as it would be priced, and what was measured; nothing with errors in the report.
  std::optional<ObservedRun> read(int line, const std::string& file) {
    if (!cell("log").empty()) read_log(file);
    model_ = request_.model, cluster_ = request_.cluster;
    if (!cell("model").empty()) take("model", model_, find_model);
    if (!cell("cluster").empty()) take("cluster", cluster_, cluster::find_cluster);
    if (is_good_) ask();
    if (is_good_) check_parameters();
    const double step = seconds();
    config::Report found;
    std::optional<planner::Finalist> priced;
    if (is_good_) priced = price(found);
    refuse_all("layout", found);
    if (priced) check_times(*priced, step);
    if (!is_good_) return std::nullopt;
    const planner::Priced& by_terms = priced->priced;
    ObservedRun made{said(line),
                     {observe::time_features(by_terms.request, by_terms.price.time),
                      std::log(step / priced->seconds)}};
    made.said.set("layout", to_text(planner::layout_of(*priced)))
        .set("measured_s", step)
        .set("predicted_s", priced->seconds);
    add_memory(by_terms, made);
    return is_good_ ? std::optional(std::move(made)) : std::nullopt;
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

  // What the log says fills empty cells; of what both say, it may not say otherwise.
  void read_log(const std::string& file) {
    const std::string name = (std::filesystem::path(file).parent_path() / cell("log")).string();
    const Result<std::string> text = read_text(name);
    auto read =
        text.ok() ? observe::read_run_log(*text, name) : Result<observe::RunLog>(text.error());
    if (!read.ok()) return refuse(read.error().code, read.error().message, read.error().help);
    log_ = *std::move(read);
    if (!cell("step_s").empty())
      refuse(Code::kConflict, "column step_s: the log says it, too", "leave one of them empty");
    if (log_.cells["model"] == request_.model.name) log_.cells.erase("model");
    for (const auto& [column, value] : log_.cells)
      if (cell(column).empty())
        cells_[column] = value;
      else if (column != "model" && column != "cluster" && cell(column) != value)
        refuse(Code::kConflict,
               join_parts("column ", column, ": ", cell(column), ", but ", name, " says ", value),
               "leave it empty, or name the log of that run");
  }

  // A name does not tell a model's sizes: the run file may have replaced some.
  void check_parameters() {
    if (cell("parameters").empty()) return;
    const Result<model::Model> described = model::describe(model_);
    const std::int64_t count = described.ok() ? model::count(*described).total : 0;
    if (std::to_string(count) != cell("parameters"))
      refuse(Code::kConflict,
             join_parts("column log: a run of ", cell("parameters"), " parameters, but ",
                        model_.name, " has ", count),
             "name a model file of its sizes in column model, in a CSV with column log");
  }

  double seconds() {
    if (cell("log").empty()) return positive("step_s");
    if (log_.step_s > 0 || !is_good_) return log_.step_s;
    return static_cast<double>(question_.global_batch * question_.seq) /
           (log_.tokens_per_s * static_cast<double>(question_.devices));
  }

  // A wrong unit, a wrong column or another run's log: nothing could be learned from it.
  void check_times(const planner::Finalist& finalist, double step) {
    constexpr double kMost = 20;
    const std::string column = cell("log").empty() ? "column step_s: " : "column log: ";
    const cost::PriceRequest& request = finalist.priced.request;
    const cost::ForwardFlops flops = cost::forward_flops(shape_, request.seq);
    const double passes = 3 * request.step_tokens() / (request.devices() * step);
    const double causal = passes * (flops.matmul + flops.attention_causal);
    const double full = passes * (flops.matmul + flops.attention_full);
    const double of_peak = causal / cost::peak_of(request, request.precision);
    if (!(step <= kMost * finalist.seconds && step >= finalist.seconds / kMost))
      refuse(Code::kBadRunTable,
             strf("%s%g s, where %.3g s are predicted", column.c_str(), step, finalist.seconds),
             strf("seconds of a step, within %g times of what is predicted", kMost));
    else if (of_peak > 1 && cluster_.device.peak_bf16.origin != cluster::Origin::kUncalibrated)
      refuse(
          Code::kBadRunTable,
          strf("%s%g s would be %.0f %% of the peak of %s", column.c_str(), step, 100 * of_peak,
               cluster_.device.name.c_str()),
          strf("at least %.3g s: are model, batch and number of devices right?", step * of_peak));
    else if (log_.flop_per_s > 0 &&
             (log_.flop_per_s < causal / 1.4 || log_.flop_per_s > full * 1.4))
      refuse(Code::kConflict,
             strf("%sit counts %.0f TFLOP/s of a device, where the row's model and batch make %.0f",
                  column.c_str(), 1e-12 * log_.flop_per_s, 1e-12 * causal),
             "name the model and the sequence of that run");
  }

  double positive(const char* column) {
    const auto value = number_in<double>(cell(column));
    if (value && std::isfinite(*value) && *value > 0) return *value;
    refuse(Code::kBadRunTable,
           join_parts("column ", column, ": `", cell(column), "` is no positive number"),
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

  // What the cells left to the question is said, so that the run stands without it.
  Json said(int line) {
    Json said = Json::object({{"line", line}, {"layout", ""}});
    const auto name = [&](const char* column, std::string text, const auto& value, auto find) {
      config::Report unread;
      if (!cell(column).empty()) return void(said.set(column, cell(column)));
      const auto found = find(text, unread);
      const bool is_found = found && *found == value;
      said.set(column, is_found ? Json(std::move(text)) : Json());
      if (!is_found && request_.keeps_learned)
        refuse(Code::kConflict,
               join_parts("column ", column, " is empty, and that of the question ",
                          "has no name by which --learned could find it again"),
               "a name of the catalogue, or a file");
    };
    name("model", request_.model_text.empty() ? model_.name : request_.model_text, model_,
         find_model);
    name("cluster", request_.cluster_text, cluster_, cluster::find_cluster);
    return said.set("seq", question_.seq)
        .set("global_batch", question_.global_batch)
        .set("dtype", question_.precision == cost::Precision::kFp8 ? "fp8" : "bf16");
  }

  void add_memory(const planner::Priced& priced, ObservedRun& made) {
    cost::Reading reading = log_.reading;
    double gib = priced.request.pp == 1 ? log_.memory_bytes / kGib : 0;  // who prints may hold less
    if (const std::string& is = cell("memory_is"); !cell("memory_gib").empty()) {
      gib = positive("memory_gib");
      if (!cost::kReadings.find(is))
        refuse(Code::kBadRunTable, join_parts("column memory_is: `", is, "` is no reading"),
               config::there_are(cost::kReadings.names()));
      reading = cost::kReadings.find(is).value_or(reading);
    }
    if (gib == 0) return;
    const double predicted =
        cost::read_bytes(priced.price.memory, reading, cost::capacity_bytes(cluster_.device)) /
        kGib;
    made.memory = {observe::memory_features(priced.request, priced.price, reading),
                   std::log(gib / predicted)};
    made.said.set("memory_gib", gib)
        .set("memory_is", cost::kReadings.name_of(reading))
        .set("predicted_gib", predicted);
  }

  const PlanRequest& request_;
  std::string place_;
  Cells cells_;
  config::Report& report_;
  bool is_good_ = true;
  observe::RunLog log_;
  model::ModelConfig model_;
  cluster::Cluster cluster_;
  cost::ModelShape shape_;
  planner::Question question_;
};

// Reads rows until the file ends or kMostMistakes are told.
class ObservedReader {
 public:
  ObservedReader(const std::string& file, const PlanRequest& request, config::Report& report)
      : request_(request), report_(report) {
    made_.file = file;
  }

  ObservedRuns read() {
    const Result<std::string> content = read_text(made_.file);
    if (!content.ok()) return report_.add(content.error()), std::move(made_);
    std::string_view text = *content;
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    if (text.starts_with("{\"event\""))
      add(1, {{"log", std::filesystem::path(made_.file).filename().string()}});
    else if (text.starts_with("{"))
      read_learned(text);
    else
      read_csv(text);
    const std::size_t runs = made_.runs.size();
    if (runs == 0 && report_.ok()) refuse(" has no runs", "a line for each, after the columns");
    if (runs > observe::kMostRuns)
      refuse(join_parts(" has ", runs, " runs"), join_parts("at most ", observe::kMostRuns));
    return std::move(made_);
  }

 private:
  void refuse(const std::string& message, std::string help) {
    report_.add(Error{Code::kBadRunTable, made_.file + message, std::move(help)});
  }

  bool goes_on() {
    constexpr std::size_t kMostMistakes = 8;
    if (report_.diagnostics().size() < kMostMistakes) return true;
    refuse(" is not read further", "mend these first");
    return false;
  }

  void add(int line, Cells cells) {
    ObservedRow row(request_, strf("%s line %d", made_.file.c_str(), line), std::move(cells),
                    report_);
    if (auto run = row.read(line, made_.file)) made_.runs.push_back(*std::move(run));
  }

  // Names of columns, each once.
  bool check_columns(const std::vector<std::string>& names) {
    const std::vector<std::string>& known = column_names();
    for (const std::string& name : names)
      if (std::ranges::find(known, name) == known.end() || std::ranges::count(names, name) > 1)
        refuse(join_parts(" line 1: column `", name, "` is unknown or twice"),
               config::did_you_mean(name, known, config::there_are(known)));
    const auto has = [&](const char* name) {
      return std::ranges::find(names, name) != names.end();
    };
    for (const char* needed : {"layout", "step_s"})
      if (!has(needed) && !has("log"))
        refuse(join_parts(" line 1: column `", needed, "` is missing"),
               "the first line names the columns: layout,step_s");
    return report_.ok();
  }

  void read_csv(std::string_view text) {
    int line = 1;
    const std::vector<std::string> names = take_csv_record(text, line);
    if (!check_columns(names)) return;
    while (!text.empty() && goes_on()) {
      const int first = line;
      const std::vector<std::string> cells = take_csv_record(text, line);
      if (cells.size() == 1 && cells.front().empty()) continue;
      if (cells.size() != names.size()) {
        refuse(join_parts(" line ", first, " has ", cells.size(), " cells, but there are ",
                          names.size(), " columns"),
               "cells with commas need quotes; a layout may have spaces instead");
        continue;
      }
      Cells record;
      for (std::size_t i = 0; i < names.size(); ++i) record[names[i]] = cells[i];
      add(first, std::move(record));
    }
  }

  // Runs as Observed::json() says them.
  void read_learned(std::string_view text) {
    Result<Json> json = Json::parse(text);
    if (!json.ok()) return refuse(" is no JSON: " + json.error().message, "");
    const Json* const schema = json->find("schema");
    const Json* const file = json->find("file");
    const Json* const runs = json->find("runs");
    if (schema == nullptr || *schema != Json(kLearnedSchema) || file == nullptr ||
        !file->is_text() || runs == nullptr || !runs->is_array())
      return refuse(" is not what `plan --learned` writes",
                    join_parts("`schema`: ", kLearnedSchema, ", with `file` and `runs`"));
    for (const Json& run : runs->items()) {
      const Json* const line = run.is_object() ? run.find("line") : nullptr;
      if (line == nullptr || !line->is_int()) return refuse(" has a run without `line`", "");
      Cells cells;
      for (const std::string& column : column_names())
        if (const Json* const value = run.find(column == "step_s" ? "measured_s" : column))
          cells[column] = text_of(*value);
      if (!goes_on()) return;
      add(static_cast<int>(line->as_int()), std::move(cells));
    }
    made_.file = file->as_text();
    made_.learned = *std::move(json);
  }

  const PlanRequest& request_;
  config::Report& report_;
  ObservedRuns made_;
};

}  // namespace

ObservedRuns read_observed_runs(const std::string& file, const PlanRequest& request,
                                config::Report& report) {
  return ObservedReader(file, request, report).read();
}

}  // namespace lockstep::cli
