// lockstep simulate: times pipeline schedules on a virtual clock, draws them and tells of them: one
// schedule with its drawing, a table of several, or JSON.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_file.h"
#include "cli/simulate/request.h"
#include "cli/simulate/timing.h"
#include "cli/table.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/draw/svg.h"
#include "lockstep/draw/terminal.h"
#include "lockstep/draw/trace.h"
#include "lockstep/pipeline/csv.h"

namespace lockstep::cli {
namespace {

struct Refused {
  std::string name;
  Error error;
};

struct SimulateResult {
  std::vector<Timed> timed;      // in the order asked for
  std::vector<Refused> refused;  // of --compare all
  std::vector<std::string> written;
};

// "10.5", "0.333", "7e-05": three digits after the point at most.
std::string number_text(double number) {
  if (number != 0 && std::abs(number) < 0.01) return strf("%.3g", number);
  std::string text = strf("%.3f", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// "1 microbatch", "10.5 microbatches".
std::string microbatches_text(double number) {
  return number_text(number) + (number == 1 ? " microbatch" : " microbatches");
}

constexpr double kWorthARow = 1e-3;  // of the step

std::string with_sign(Seconds time) {
  if (time.value == 0) return "0";
  return (time.value > 0 ? "+" : "-") + to_text(Seconds{std::abs(time.value)});
}

std::vector<std::string> cells(const std::string& name, const sim::Residual& row,
                               const sim::Residuals& residuals) {
  return {name, to_text(row.predicted), to_text(row.measured), with_sign(row.difference()),
          strf("%+.1f %%", 100 * row.difference().value / residuals.measured.value)};
}

// A measured step beside its prediction, by cause, then by kind of op; rows below a thousandth of
// the step in both are left out. Last the step itself and by how much its prediction is off. `file`
// is what was measured.
void print_residuals(const sim::Residuals& residuals, const std::string& file, Output& output) {
  output.out << "\nagainst " << file << ", its step of median length, mean of its ranks\n\n";
  Rows rows = {{"", "predicted", "measured", "difference", "of the step"}};
  for (int cause = 0; cause < sim::kNumCauses; ++cause) {
    const sim::Residual sum = residuals.total(static_cast<sim::Cause>(cause));
    if (sum.predicted == Seconds{} && sum.measured == Seconds{}) continue;
    rows.push_back(cells(sum.what, sum, residuals));
    for (const sim::Residual& row : residuals.rows) {
      const double longest = std::max(row.predicted.value, row.measured.value);
      if (row.cause == sum.cause && longest >= kWorthARow * residuals.measured.value)
        rows.push_back(cells("  " + row.what, row, residuals));
    }
  }
  sim::Residual step{{}, "step", residuals.predicted, residuals.measured};
  rows.push_back(cells("step", step, residuals));
  print_table(output.out, rows, "lrrrr");
  output.out << strf("\nthe prediction is off by %+.2f %%\n", 100 * residuals.error());
}

Json residuals_json(const sim::Residuals& residuals) {
  return Json::object({{"predicted", residuals.predicted.value},
                       {"measured", residuals.measured.value},
                       {"error", residuals.error()},
                       {"rows", Json::list(residuals.rows, [](const sim::Residual& row) {
                          return Json::object({{"cause", to_text(row.cause)},
                                               {"what", row.what},
                                               {"predicted", row.predicted.value},
                                               {"measured", row.measured.value}});
                        })}});
}

std::int64_t most_bytes(const Timed& timed) { return std::ranges::max(timed.peak_bytes); }

class Report {
 public:
  Report(const SimulateRequest& request, const Timing& timing, const SimulateResult& result,
         Output& output)
      : request_(request), timing_(timing), result_(result), output_(output) {}

  void print() const {
    if (output_.json)
      print_json(output_, json());
    else if (request_.compares)
      print_table_of_all();
    else
      print_one(result_.timed.front());
    for (const std::string& file : result_.written)
      (output_.json ? output_.err : output_.out) << "wrote " << file << '\n';
  }

 private:
  void row(const char* label, const std::string& text) const {
    output_.row(0, style::kDim, 10, label, text);
  }

  // Of a makespan, a bubble and so on.
  std::string time_text(Seconds time) const {
    return request_.calibration ? to_text(time) : number_text(time.value);
  }

  // "F 1, I 1, W 1 for a microbatch on a pipeline rank; P2P 0.2".
  std::string times_text() const {
    if (request_.calibration) {
      const auto& [name, calibration] = *request_.calibration;
      return join_parts("measured on ", calibration.ranks, " ", calibration.ranks_are, ", ",
                        calibration.date, ": ", name);
    }
    const StepCosts costs = timing_.costs();
    std::string text =
        strf("F %.4g, I %.4g, W %.4g", costs.forward, costs.input_grad, costs.weight_grad);
    text += request_.spec ? " for a microbatch on a mean pipeline rank"
                          : " for a microbatch on a whole pipeline rank";
    if (request_.spec)
      text += request_.has_costs ? ", split over its units by FLOPs" : ", in proportion to FLOPs";
    text += "; P2P " + number_text(costs.hop);
    if (request_.is_lowered() && request_.zero() > 0)
      text += ", gathering its parameters " + number_text(costs.gather);
    if (request_.is_lowered()) text += ", reducing its gradients " + number_text(costs.reduce);
    return text;
  }

  std::string step_text() const {
    if (request_.spec) return to_text(*request_.spec);
    return join_parts(counted(request_.step->layers, "block"), " per stage, ZeRO ", request_.zero(),
                      request_.zero() <= 1 ? "" : ", reduced after each microbatch",
                      request_.recomputes() ? ", blocks recomputed" : "");
  }

  // What the drawing does not say.
  std::string memory_text(const Timed& timed) const {
    std::string text = join_parts("activations of ", microbatches_text(timed.max_peak()),
                                  " on pipeline rank ", timed.peak_coord());
    if (request_.recomputes()) text += ", besides the inputs of blocks";
    return request_.spec && timed.peak_bytes.empty() ? text + "; bytes are " + timing_.no_bytes()
                                                     : text;
  }

  std::string found_text(const Timed& timed) const {
    if (!timed.lower_bound) return timed.origin;
    return timed.origin + (*timed.lower_bound == timed.makespan
                               ? "; no schedule is faster"
                               : "; no schedule takes less than " + time_text(*timed.lower_bound));
  }

  void print_one(const Timed& timed) const {
    const ScheduleCandidate& candidate = request_.candidates.front();
    const bool is_named = candidate.kind == ScheduleCandidate::Kind::kNamed;
    output_.out << output_.paint(style::kBold, timed.figure.title)
                << wrapped(is_named ? ": " + std::string(candidate.row.summary) : "", 0,
                           static_cast<int>(timed.figure.title.size()), output_.width)
                << '\n';
    if (request_.is_lowered()) row("step", step_text());
    row("times", times_text());
    if (timed.bubble_without_barrier != timed.bubble)
      row("bubble", time_text(timed.bubble_without_barrier) +
                        " when the next step need not wait for all pipeline ranks");
    if (!timed.origin.empty()) row("found", found_text(timed));
    if (request_.is_lowered()) row("memory", memory_text(timed));
    if (is_named && !timed.is_run) row("runs", "no: refilled, it can be simulated only");
    draw::Figure figure = timed.figure;
    figure.title.clear();
    output_.out << '\n' << terminal(figure, {.width = output_.width, .colour = output_.colour});
    if (timed.residuals) print_residuals(*timed.residuals, request_.against->name, output_);
  }

  void print_table_of_all() const {
    const std::string shape = join_parts(counted(request_.coords, "pipeline rank"), ", ",
                                         counted(request_.microbatches, "microbatch"));
    output_.out << output_.paint(style::kBold, shape) << "\n\n";
    if (request_.is_lowered()) row("step", step_text());
    row("times", times_text());
    if (request_.memory_cap)
      row("cap", join_parts("activations of ", microbatches_text(*request_.memory_cap),
                            "; a peak above it is marked !"));
    output_.out << '\n';
    if (!result_.timed.empty()) print_rows();
    if (!result_.refused.empty()) output_.out << "\nNot of this shape:\n";
    for (const Refused& refused : result_.refused)
      output_.out << "  " << strf("%-14s", refused.name.c_str()) << "  "
                  << wrapped(refused.error.message, 18, 18, output_.width);
  }

  // In a narrow terminal those go first that others tell nearly as well.
  void print_rows() const {
    std::vector<Column<Timed>> columns = {
        {"schedule", 'l', [](const Timed& t) { return t.name; }},
        {"vpp", 'r', [](const Timed& t) { return std::to_string(t.schedule.shape().chunks); }, 2},
        {"step time", 'r', [this](const Timed& t) { return time_text(t.makespan); }},
        {"bubble", 'r', [this](const Timed& t) { return time_text(t.bubble); }},
        {"idle", 'r', [](const Timed& t) { return strf("%.1f %%", 100 * t.idle_share); }, 5},
        {"peak", 'r', [](const Timed& t) { return number_text(t.max_peak()); }},
        {"on", 'r', [](const Timed& t) { return std::to_string(t.peak_coord()); }, 6},
        {"W", 'l', [](const Timed& t) { return t.splits_backward() ? "split" : "fused"; }, 4},
        {"runs", 'l', [](const Timed& t) { return t.is_run ? "yes" : "no"; }, 3}};
    if (!result_.timed.front().peak_bytes.empty())
      columns.insert(
          columns.begin() + 7,
          {"memory", 'r', [](const Timed& t) { return to_text(Bytes{most_bytes(t)}); }, 1});
    fit(columns, result_.timed, output_.table_width - (request_.memory_cap ? 2 : 0));
    for (Column<Timed>& column : columns)
      if (column.title == std::string_view("peak"))
        column.text = [this](const Timed& t) {
          const bool is_over = request_.memory_cap && t.max_peak() > *request_.memory_cap;
          return (is_over ? "! " : "") + number_text(t.max_peak());
        };
    print_table(output_.out, columns, result_.timed);
  }

  Json json() const {
    const StepCosts costs = timing_.costs();
    return Json::object(
        {{"schema", "lockstep.simulate/2"},
         {"pp", request_.coords},
         {"microbatches", request_.microbatches},
         {"costs", Json::object({{"forward", costs.forward},
                                 {"input_grad", costs.input_grad},
                                 {"weight_grad", costs.weight_grad},
                                 {"p2p", costs.hop},
                                 {"gather", costs.gather},
                                 {"reduce", costs.reduce}})},
         {"time_unit", request_.calibration ? Json("s") : Json()},
         {"calibration", request_.calibration ? Json(request_.calibration->name) : Json()},
         {"model", request_.spec ? Json(request_.spec->model.name) : Json()},
         {"zero", request_.is_lowered() ? Json(request_.zero()) : Json()},
         {"recompute", request_.recomputes()},
         {"refill", request_.refill},
         {"memory_cap", request_.memory_cap ? Json(*request_.memory_cap) : Json()},
         {"schedules",
          Json::list(result_.timed, [&](const Timed& timed) { return json_of(timed); })},
         {"refused", Json::list(result_.refused,
                                [](const Refused& one) {
                                  return Json::object(
                                      {{"schedule", one.name}, {"reason", one.error.message}});
                                })},
         {"written", Json::list(result_.written)}});
  }

  Json json_of(const Timed& timed) const {
    const double makespan = timed.makespan.value;
    Json json = Json::object({{"schedule", timed.name},
                              {"vpp", timed.schedule.shape().chunks},
                              {"step_time", makespan},
                              {"work", timed.work.value},
                              {"bubble", timed.bubble.value},
                              {"bubble_share", makespan > 0 ? timed.bubble.value / makespan : 0.0},
                              {"bubble_without_barrier", timed.bubble_without_barrier.value},
                              {"idle_share", timed.idle_share},
                              {"peak", timed.max_peak()},
                              {"peak_rank", timed.peak_coord()},
                              {"peak_per_rank", Json::list(timed.peak)},
                              {"splits_backward", timed.splits_backward()},
                              {"is_run", timed.is_run}});
    if (!timed.peak_bytes.empty()) {
      json.set("peak_bytes", most_bytes(timed));
      json.set("peak_bytes_per_rank", Json::list(timed.peak_bytes));
    }
    if (!timed.origin.empty()) json.set("origin", timed.origin);
    if (timed.residuals) json.set("against", residuals_json(*timed.residuals));
    if (timed.lower_bound) json.set("lower_bound", timed.lower_bound->value);
    if (request_.memory_cap) json.set("fits", timed.max_peak() <= *request_.memory_cap);
    return json;
  }

  const SimulateRequest& request_;
  const Timing& timing_;
  const SimulateResult& result_;
  Output& output_;
};

Result<void> write_files(const SimulateRequest& request, SimulateResult& result,
                         const Output& output) {
  const Timed& timed = result.timed.front();
  const auto write = [&](const std::string& name, const auto& text) -> Result<void> {
    if (name.empty()) return {};
    result.written.push_back(name);
    return output.write(name, text());
  };
  LS_TRY(write(request.svg, [&] { return draw::svg(timed.figure); }));
  LS_TRY(write(request.trace, [&] { return draw::trace(timed.figure); }));
  return write(request.csv, [&] { return to_csv(timed.schedule); });
}

ExitCode over_the_cap(const SimulateRequest& request, const Timing& timing, const Timed& timed,
                      Output& output) {
  const auto nearest = timing.fastest_that_fits();
  fail(output, Error{Code::kConflict,
                     join_parts("schedule `", timed.name, "` holds activations of ",
                                microbatches_text(timed.max_peak()), " on pipeline rank ",
                                timed.peak_coord(), ", --memory-cap allows ",
                                number_text(*request.memory_cap)),
                     nearest ? join_parts("the fastest that fits: --schedule ", nearest->name,
                                          ", which holds ", number_text(nearest->max_peak()),
                                          " and takes ", number_text(nearest->makespan.value))
                             : "no known schedule of this shape holds so little"});
  return ExitCode::kCheckFailed;
}

// One number of chunks seldom suits all that are compared.
Error with_help(Error error, const Args& args) {
  if (args.has("compare") && args.has("vpp"))
    error.help =
        join_parts("leave --vpp out, and give them one by one, as interleaved:", args.text("vpp"));
  return error;
}

Result<ExitCode> run_simulate(const Args& args, Output& output) {
  config::Report report;
  const auto request = read_simulate_request(args, report);
  if (!request) return fail(output, report, subject_of(args));
  const auto timing = LS_TRY(Timing::create(*request));
  SimulateResult result;
  for (const ScheduleCandidate& candidate : request->candidates) {
    auto timed = timing.time(candidate);
    if (timed.ok())
      result.timed.push_back(*std::move(timed));
    else if (request->is_all)
      result.refused.push_back({candidate.name, timed.error()});
    else
      report.add(with_help(timed.error(), args));
  }
  if (!report.ok()) return fail(output, report, subject_of(args));
  const bool is_over = !request->compares && request->memory_cap &&
                       result.timed.front().max_peak() > *request->memory_cap;
  if (is_over) return over_the_cap(*request, timing, result.timed.front(), output);
  if (!request->compares) LS_TRY(write_files(*request, result, output));
  Report(*request, timing, result, output).print();
  return ExitCode::kOk;
}

Option count(const char* name, const char* help, double min = 1, double max = kMostCount) {
  return integer(name, "N", help).between(min, max);
}

Option time(const char* name, const char* help) {
  return real(name, "TIME", help).between(0, kMostTime);
}

std::vector<Option> schedules() {
  return {
      text("schedule", "NAME",
           "A schedule of docs/schedules.md, `auto` to search for the fastest under "
           "--memory-cap, or a file.csv in PyTorch's form. NAME:N is NAME with N virtual stages "
           "[default: that of FILE, else 1f1b]"),
      text("compare", "NAMES",
           "One table of several, as 1f1b,interleaved:4,zbv; `all` for every schedule that "
           "takes the shape"),
      count("pp", "Pipeline ranks [default: 4]"),
      count("vpp",
            "Stages per pipeline rank [default: what the schedule needs; 2 when it takes any]"),
      count("microbatches", "Microbatches of a step [default: 2 x pp]"),
      count("group", "Microbatches that go through a virtual stage together [default: pp]"),
      real("memory-cap", "N",
           "Most activations a pipeline rank may hold, in those of one microbatch; exit code 1 "
           "when the schedule holds more [default: none; for `auto`, what 1f1b holds]")
          .between(1, kMostCount),
      flag("refill", "Move weight gradients to where a pipeline rank would stand idle")};
}

std::vector<Option> times() {
  return {text("costs", "F,I,W",
               "Of one microbatch on a whole pipeline rank: forward pass, gradient of the input, "
               "gradients of the weights [default: 1,1,1; with FILE in proportion to its FLOPs]"),
          time("p2p", "One tensor to the next pipeline rank [default: 0]"),
          time("gather", "With ZeRO 1 to 3: all parameters of a pipeline rank [default: 0]"),
          time("reduce", "With --zero or FILE: all gradients of a pipeline rank [default: 0]")};
}

std::vector<Option> simulate_options() {
  return grouped(
      {{"Schedules", schedules()},
       {"The whole step, op by op",
        {count("zero", "Shard over the data axis as ZeRO stage N does, 0 to 3", 0, 3),
         flag("recompute", "Blocks repeat F before their backward pass"),
         count("layers", "Blocks per stage [default: 1]"), set_option()}},
       {"Times, in any unit", times()},
       {"Times, in seconds",
        {text("calibration", "IN",
              "With FILE: what `lockstep calibrate` measured; times are then in seconds"),
         text("against", "IN",
              "With --calibration: what `lockstep train --timeline` measured; shows what was "
              "predicted beside it, and where they differ")}},
       {"Files to write",
        {text("svg", "OUT", "The drawing, for browsers and papers"),
         text("trace", "OUT", "Every op with its times, for Perfetto and chrome://tracing"),
         text("csv", "OUT", "The order of compute, as PyTorch's pipelining reads it")}}});
}

}  // namespace

Verb simulate_verb() {
  return {
      .name = "simulate",
      .summary = "Time pipeline schedules, compare and draw them",
      .description =
          "Runs one step of a pipeline on a virtual clock and shows who computes what when, how "
          "long the step takes, how much of that is bubble (time in which the busiest pipeline "
          "rank stands idle) and how many activations are held. Stages are timed whole, and a "
          "tensor arrives one P2P transfer after it was made. With --zero, --recompute or a run "
          "file the whole step is timed op by op, with its transfers, gathers and reductions. "
          "Communication takes no time unless told. docs/schedules.md describes the schedules.",
      .examples = {{"lockstep simulate --schedule zbv", "draw a schedule"},
                   {"lockstep simulate --pp 8 --microbatches 32 --compare all --p2p 0.05",
                    "one table of all"},
                   {"lockstep simulate --pp 8 --schedule auto --memory-cap 6",
                    "search for the fastest that holds six microbatches"},
                   {"lockstep simulate --zero 3 --gather 0.5 --reduce 1 --svg step.svg",
                    "a whole step with its collectives, as a picture"},
                   {"lockstep simulate run.toml --schedule interleaved:4 --trace step.json",
                    "a run, for Perfetto"},
                   {"lockstep simulate run.toml --calibration cal.json --against run.timeline",
                    "in seconds, and what a measured run says to that"}},
      .options = simulate_options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, layout and batch",
                       .required = false}},
      .run = run_simulate};
}

}  // namespace lockstep::cli
