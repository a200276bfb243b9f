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
  bool fits() const { return row() != nullptr && row()->finalist.priced.price.fits; }
  std::int64_t devices() const { return row() ? row()->devices : request.question.devices; }

  // Cells of the table. What does not fit has no times: it would look like the fastest.
  std::string devices_text() const { return with_commas(devices()); }
  std::string price() const { return args.has("price") ? args.text("price") : "-"; }
  std::string step() const { return fits() ? to_text(Seconds{row()->seconds()}) : "-"; }
  std::string rate() const { return fits() ? amount(row()->tokens_per_s()) : "-"; }
  std::string mfu() const { return fits() ? strf("%.1f", 100 * row()->mfu_causal()) : "-"; }
  std::string memory() const {
    const double has = cost::capacity_bytes(request.cluster.device) / kGib;
    return row() ? strf("%.1f/%.0f", row()->device_bytes() / kGib, has) : "-";
  }
  std::string days() const {
    const double days = fits() ? run_cost(args, *row()).days : 0;
    return fits() ? strf(days < 1000 ? "%.3g" : "%.0f", days) : "-";
  }
  std::string money() const {
    const auto money = fits() ? run_cost(args, *row()).money : std::nullopt;
    return money ? amount(*money) : "-";
  }
};

// "64", "64,1k" and "64..512", which is 64, 128, 256, 512. Empty where it begins with no digit.
Result<std::vector<std::int64_t>> counts_in(const std::string& text) {
  std::vector<std::int64_t> counts;
  if (text.empty() || std::isdigit(text[0]) == 0) return counts;
  std::string list = text;
  const std::size_t dots = text.find("..");
  if (dots != std::string::npos) list.replace(dots, 2, ",");
  for (const std::string_view word : split(list, ',')) {
    const Result<double> number = parse_amount(word, Suffixes::kBinary);
    if (!number.ok() || *number < 1 || *number != std::floor(*number) || *number >= 0x1p31)
      return Error{Code::kBadOptionValue,
                   join_parts("--compare ", text, ": `", word, "` is no number of devices"),
                   "numbers from 1 to 2147483647, as 64,128 or 64..1024, which doubles"};
    counts.push_back(static_cast<std::int64_t>(*number));
  }
  if (dots == std::string::npos) return counts;
  const std::int64_t least = std::ranges::min(counts), most = std::ranges::max(counts);
  if (counts.size() != 2 || counts[1] < most)
    return Error{Code::kBadOptionValue,
                 join_parts("--compare ", text, " is no range from fewer to more devices"),
                 join_parts("the nearest: --compare ", least, "..", most)};
  for (counts.pop_back(); 2 * counts.back() <= most;) counts.push_back(2 * counts.back());
  return counts;
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
    return std::ranges::any_of(compared_, &Compared::fits) ? ExitCode::kOk : ExitCode::kCheckFailed;
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
      const auto counts = LS_TRY(counts_in(what));
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
      for (const auto& [warning, rows] : warnings())
        output_.err << rows << "note: " << warning << "\n";
      return;
    }
    const planner::Question& q = compared_.front().request.question;
    output_.out << output_.paint(style::kBold, compared_.front().request.model.name) << ": "
                << counted(q.global_batch, "sequence") << " of " << with_commas(q.seq)
                << " tokens a step\n\n";
    table();
    output_.out << "\n";
    for (std::size_t i = 0; i < compared_.size(); ++i)
      output_.row(0, style::kCyan, 4, std::to_string(i + 1).c_str(), layout_of(compared_[i]));
    for (const auto& [warning, rows] : warnings())
      output_.row(4, style::kYellow, 6, "note", rows + warning);
  }

  void table() {
    using Of = const Compared* const&;
    std::vector<const Compared*> all;
    for (const Compared& one : compared_) all.push_back(&one);
    const auto first = std::ranges::find_if(all, &Compared::fits);
    const auto number = [&](Of one) {
      return std::to_string(std::ranges::find(all, one) - all.begin() + 1);
    };
    const auto speed = [&](Of one) {
      if (!one->fits()) return std::string("-");
      return strf("%.2fx", one->row()->tokens_per_s() / (*first)->row()->tokens_per_s());
    };
    const bool uses_all = std::ranges::all_of(
        all, [](Of one) { return one->devices() == one->request.cluster.count; });
    std::vector<Column<const Compared*>> columns = {
        {"", 'r', number},
        {"cluster", 'l', [](Of one) { return one->request.cluster.name; }},
        {"devices", 'r', &Compared::devices_text, 0, uses_all ? all[0]->devices_text() : ""},
        {"price", 'r', &Compared::price, 0, all[0]->price()},
        {"step", 'r', &Compared::step},
        {"tokens/s", 'r', &Compared::rate},
        {"speed", 'r', speed},
        {"MFU %", 'r', &Compared::mfu},
        {"GiB", 'r', &Compared::memory}};
    if (args_.has("tokens")) {
      columns.push_back({"days", 'r', &Compared::days});
      columns.push_back({"cost", 'r', &Compared::money});
    }
    fit(columns, all, output_.table_width);
    print_table(output_.out, columns, all);
  }

  // The layout, or why there is none.
  static std::string layout_of(const Compared& one) {
    if (one.row() == nullptr) return one.none->message;
    return (one.fits() ? "" : "does not fit: ") + short_name(one.row()->finalist);
  }

  // Each once, with the rows that it is of, as "rows 1 and 3: "; empty: of all.
  std::vector<std::pair<std::string, std::string>> warnings() const {
    std::vector<std::pair<std::string, std::vector<std::string>>> found;
    for (std::size_t i = 0; i < compared_.size(); ++i)
      for (const std::string& warning : compared_[i].answer.warnings) {
        auto seen = std::ranges::find(found, warning, [](const auto& one) { return one.first; });
        if (seen == found.end()) seen = found.insert(seen, {warning, {}});
        seen->second.push_back(std::to_string(i + 1));
      }
    std::vector<std::pair<std::string, std::string>> notes;
    for (const auto& [warning, rows] : found)
      notes.emplace_back(warning,
                         rows.size() == compared_.size()
                             ? ""
                             : join_parts(rows.size() == 1 ? "row " : "rows ", listed(rows), ": "));
    return notes;
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
