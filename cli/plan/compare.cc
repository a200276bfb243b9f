#include "cli/plan/compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <deque>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "cli/plan/report.h"
#include "cli/plan/request.h"
#include "cli/plan/targets.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "lockstep/base/csv.h"
#include "lockstep/base/text.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

// A plan of the table: what was typed, what it asks, what was found. Stays where it is.
struct Compared {
  std::string what;
  Args args;
  PlanRequest request = {};
  PlanAnswer answer = {};
  std::optional<Error> none = {};  // why nothing was found

  const PlanRow* row() const { return none ? nullptr : &answer.rows.front(); }
};

// "64", "64,1k" and "64..512", which is 64, 128, 256, 512. Empty: no numbers.
std::vector<std::int64_t> counts_in(const std::string& text) {
  const auto count = [](std::string_view word) {
    const Result<double> number = parse_amount(word, Suffixes::kBinary);
    return number.ok() && *number >= 1 && *number == std::floor(*number) && *number < 0x1p31
               ? static_cast<std::int64_t>(*number)
               : 0;
  };
  std::vector<std::int64_t> counts;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const std::int64_t last = count(text.substr(dots + 2));
    for (std::int64_t one = count(text.substr(0, dots)); one > 0 && one <= last; one *= 2)
      counts.push_back(one);
    return counts;
  }
  for (const std::string_view word : split(text, ',')) counts.push_back(count(word));
  return std::ranges::find(counts, 0) == counts.end() ? counts : std::vector<std::int64_t>();
}

// "tp=8,pp=4" and "tp8 pp4"; not "tpu-v4:4x4x4".
bool is_layout(const std::string& text) {
  const std::size_t letters =
      std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
  return text.find('=') != std::string::npos ||
         (letters >= 2 && letters < text.size() && std::isdigit(text[letters]) != 0 &&
          text.find(':') == std::string::npos &&
          (letters == 2 ? text[1] == 'p' : text.starts_with("zero")));
}

class Comparison {
 public:
  Comparison(const Args& args, Output& output) : args_(args), output_(output) {}

  Result<ExitCode> run() {
    LS_TRY(list());
    for (Compared& one : compared_) {
      config::Report report;
      if (!read_plan_request(one.args, one.request, report) || !report.ok())
        return fail(output_, report, subject_of(one.args));
      one.none = choose_devices(one.args, one.request);
      if (one.none && one.none->code != Code::kTargetMissed) return *one.none;
      if (one.none) continue;
      answer_plan(one.args, one.request, one.answer);
      one.none = one.answer.refused;
      if (!one.none && one.answer.rows.empty()) one.none = nothing_found(one.request, one.answer);
    }
    print();
    const bool fits = std::ranges::any_of(compared_, [](const Compared& one) {
      return one.row() != nullptr && one.row()->finalist.priced.price.fits;
    });
    return fits ? ExitCode::kOk : ExitCode::kCheckFailed;
  }

 private:
  // At no price of its own: at that of the other options.
  Args& add(const std::string& what, std::optional<double> price, bool first = false) {
    Compared& one = first ? compared_.emplace_front() : compared_.emplace_back();
    one.what = what;
    one.args = args_;
    if (price) one.args.set("price", {shortest(*price)});
    return one.args;
  }

  bool file_names_cluster() const {
    config::Report report;  // of the plans
    const auto run = args_.has("FILE") ? load_run(args_, report) : std::nullopt;
    return run && run->find("cluster.name") != nullptr;
  }

  Result<void> list() {
    bool only_counts = true;
    for (const std::string& text : args_.texts("compare")) {
      const std::size_t at = is_layout(text) ? std::string::npos : text.rfind('@');
      const std::string what = text.substr(0, at);
      std::optional<double> price;
      if (at != std::string::npos) {
        const auto money = parse_amount(text.substr(at + 1), Suffixes::kMoney);
        if (!money.ok() || !(*money > 0))
          return Error{Code::kBadOptionValue,
                       join_parts("--compare ", text, " says no price after its @"),
                       "write b200:256@3.5"};
        price = *money;
      }
      const std::vector<std::int64_t> counts = counts_in(what);
      for (const std::int64_t count : counts)
        add(with_commas(count), price).set("devices", {std::to_string(count)});
      only_counts = only_counts && !counts.empty();
      if (counts.empty()) {
        Args& own = add(what, price);
        own.set(is_layout(what) ? "layout" : "cluster", {what});
        if (!is_layout(what)) own.set("devices", {});
      }
    }
    if (!only_counts && (args_.has("cluster") || file_names_cluster()))
      add(args_.has("layout") ? args_.text("layout") : "as asked", {}, true);
    return {};
  }

  void print() {
    if (output_.json) {
      print_json(output_, json());
      return;
    }
    if (args_.flag("csv")) {
      output_.out << csv_header();
      for (const Compared& one : compared_)
        output_.out << csv_line(one.args, one.request, one.row());
      for (const Compared& one : compared_)
        for (const std::string& warning : one.answer.warnings)
          output_.err << one.request.cluster.name << ": note: " << warning << "\n";
      return;
    }
    const planner::Question& q = compared_.front().request.question;
    output_.out << output_.paint(style::kBold, compared_.front().request.model.name) << ": "
                << counted(q.global_batch, "sequence") << " of " << with_commas(q.seq)
                << " tokens a step\n\n";
    table();
    output_.out << "\n";
    for (std::size_t i = 0; i < compared_.size(); ++i) details(i);
  }

  void table() {
    Rows rows = {{"", "cluster", "step", "tokens/s", "speed", "MFU %", "GiB"}};
    if (args_.has("tokens")) rows[0].insert(rows[0].end(), {"days", "cost"});
    std::optional<double> first;
    for (const Compared& one : compared_) {
      rows.push_back({std::to_string(rows.size()), one.request.cluster.name});
      if (const PlanRow* const row = one.row()) {
        if (!first) first = row->tokens_per_s();
        for (std::string cell :
             {to_text(Seconds{row->seconds()}), amount(row->tokens_per_s()),
              strf("%.2fx", row->tokens_per_s() / *first), strf("%.1f", 100 * row->mfu_causal()),
              strf("%.1f/%.0f", row->device_bytes() / kGib,
                   cost::capacity_bytes(one.request.cluster.device) / kGib)})
          rows.back().push_back(std::move(cell));
        if (args_.has("tokens")) {
          const RunCost cost = run_cost(one.args, *row);
          rows.back().push_back(strf(cost.days < 1000 ? "%.3g" : "%.0f", cost.days));
          rows.back().push_back(cost.money ? amount(*cost.money) : "-");
        }
      }
      rows.back().resize(rows[0].size(), "-");
    }
    print_table(output_.out, rows, "rl" + std::string(rows[0].size() - 2, 'r'));
  }

  // The layout, or why there is none, and what is worth saying about it.
  void details(std::size_t i) {
    const Compared& one = compared_[i];
    const std::string number = std::to_string(i + 1);
    output_.row(0, style::kCyan, 4, number.c_str(),
                one.row() == nullptr ? one.none->message
                : one.row()->finalist.priced.price.fits
                    ? short_name(one.row()->finalist)
                    : "does not fit: " + short_name(one.row()->finalist));
    for (const std::string& warning : one.answer.warnings)
      output_.row(4, style::kYellow, 6, "note", warning);
  }

  Json json() const {
    Json list = Json::array();
    for (const Compared& one : compared_) {
      Json made = Json::object({{"what", one.what},
                                {"cluster", one.request.cluster.name},
                                {"found", one.row() != nullptr}});
      if (one.args.has("price")) made.set("price", one.args.real("price"));
      if (!one.request.tried.empty()) made.set("tried", trials_json(one.request));
      if (one.row() != nullptr)
        made.set("plan", row_json(one.args, *one.row()))
            .set("warnings", Json::list(one.answer.warnings));
      else
        made.set("reason", one.none->message);
      list.push(std::move(made));
    }
    const planner::Question& q = compared_.front().request.question;
    return Json::object({{"schema", "lockstep.plan-compare/1"},
                         {"model", compared_.front().request.model.name},
                         {"dtype", args_.text("dtype")},
                         {"seq", q.seq},
                         {"global_batch", q.global_batch},
                         {"compared", std::move(list)}});
  }

  const Args& args_;
  Output& output_;
  std::deque<Compared> compared_;
};

}  // namespace

Result<ExitCode> compare(const Args& args, Output& output) {
  return Comparison(args, output).run();
}

std::string csv_header() {
  return "model,cluster,devices,seq,global_batch,dtype,fits,layout,step_s,tokens_per_s,mfu,"
         "memory_bytes,device_has_bytes,goodput,days,device_hours,money\n";
}

std::string csv_line(const Args& args, const PlanRequest& request, const PlanRow* row) {
  const planner::Question& q = request.question;
  std::string line =
      join_parts(csv_quoted(request.model.name), ",", csv_quoted(request.cluster.name), ",",
                 row == nullptr ? q.devices : row->devices, ",", q.seq, ",", q.global_batch, ",",
                 args.text("dtype"), ",");
  if (row == nullptr) return line + "false" + std::string(10, ',') + "\n";
  const planner::Priced& priced = row->finalist.priced;
  line += join_parts(priced.price.fits ? "true," : "false,",
                     csv_quoted(to_text(planner::layout_of(row->finalist))));
  for (const double number :
       {row->seconds(), row->tokens_per_s(), row->mfu_causal(), row->device_bytes(),
        cost::capacity_bytes(request.cluster.device), row->goodput.share})
    line += "," + shortest(number);
  if (!args.has("tokens")) return line + ",,,\n";
  const RunCost cost = run_cost(args, *row);
  return line + join_parts(",", shortest(cost.days), ",", shortest(cost.device_hours), ",",
                           cost.money ? shortest(*cost.money) : "", "\n");
}

}  // namespace lockstep::cli
