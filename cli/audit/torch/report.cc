#include "cli/audit/torch/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <utility>

#include "cli/table.h"
#include "lockstep/audit/factors.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

using audit::Compared;
using audit::Dump;
using audit::Explanation;
using audit::Tensor;

constexpr int kLabel = 14;
constexpr std::size_t kMostDiffer = 3;

std::string times(double ratio) {
  return ratio >= 100 ? with_commas(static_cast<std::int64_t>(std::min(ratio, 1e18)))
                      : strf("%.2g", ratio);
}

std::size_t worst_of(const std::vector<Compared>& tensors) {
  return std::ranges::max_element(tensors, {}, &Compared::ratio) - tensors.begin();
}

class Text {
 public:
  Text(const AuditFindings& found, Output& output)
      : found_(found), dump_(found.dump), output_(output) {}

  void print(bool verbose) {
    begin();
    if (verbose) table();
    if (found_.is_right()) return right();
    output_.out << output_.paint(style::kRed, "not the same training") << "\n";
    wrong_gradients();
    wrong_numbers();
    for (std::size_t i = 0; i < std::min(dump_.differ.size(), kMostDiffer); ++i)
      row("copies differ", dump_.differ[i]);
    if (dump_.differ.size() > kMostDiffer)
      row("", join_parts("and ", dump_.differ.size() - kMostDiffer, " more pieces"));
  }

 private:
  void row(const char* label, const std::string& text) const {
    output_.row(2, style::kDim, kLabel, label, text);
  }

  void begin() const {
    output_.out << output_.paint(style::kBold, dump_.path) << ": " << dump_.framework << ", "
                << counted(dump_.ranks, "rank") << ", passes in " << to_text(dump_.compute) << "\n"
                << counted(dump_.gradients.size(), "tensor") << "; "
                << counted(dump_.samples.size(), "sample") << " of " << dump_.seq() << " tokens, "
                << counted(dump_.live(), "label") << " that count\n\n";
  }

  void table() const {
    Rows rows = {{"tensor", "distance", "bound", ""}};
    for (std::size_t i = 0; i < found_.tensors.size(); ++i) {
      const Compared& one = found_.tensors[i];
      const double size = one.reference == 0 ? 1 : one.reference;
      rows.push_back({dump_.gradients[i].name, strf("%.1e", one.relative()),
                      strf("%.1e", one.bound / size), one.is_right() ? "" : "wrong"});
    }
    print_table(output_.out, rows, "lrrl");
    output_.out << "\n";
  }

  void right() const {
    output_.out << output_.paint(style::kGreen, "the same training") << "\n";
    const std::size_t worst = worst_of(found_.tensors);
    row("gradients",
        join_parts("all within their bounds; nearest to its own is ", dump_.gradients[worst].name,
                   ", ", strf("%.1e", found_.tensors[worst].relative()), " off, ",
                   strf("%.2g", found_.tensors[worst].ratio()), " of it"));
    for (const SaidCheck& check : found_.said)
      row(check.name,
          strf("%.6g, off by %.1e (bound %.1e)", check.said, check.error(), check.bound));
  }

  void wrong_gradients() const {
    const auto first =
        std::ranges::find_if(found_.tensors, [](const Compared& t) { return !t.is_right(); });
    if (first == found_.tensors.end()) return row("gradients", "all within their bounds");
    const Tensor& tensor = dump_.gradients[first - found_.tensors.begin()];
    const auto count =
        std::ranges::count_if(found_.tensors, [](const Compared& t) { return !t.is_right(); });
    row("first wrong", join_parts(tensor.name, " (", count, " of ", found_.tensors.size(),
                                  " gradients are wrong)"));
    row("how wrong", std::isfinite(first->distance)
                         ? join_parts(strf("%.2g", first->relative()), " of its norm, ",
                                      times(first->ratio()), " times its bound")
                         : std::string("it holds numbers that are not finite"));
    const audit::Whereabouts where =
        audit::locate(dump_, tensor, found_.truth.gradients.at(tensor.name), first->bound);
    row("where", where.rows);
    if (!where.ranks.empty()) row("written by", owners(where));
    explained("explained by", found_.explained);
  }

  static std::string owners(const audit::Whereabouts& where) {
    std::vector<std::string> ranks;
    for (const int rank : where.ranks) ranks.push_back(std::to_string(rank));
    const char* const noun = ranks.size() == 1 ? "rank " : "ranks ";
    if (static_cast<int>(ranks.size()) == where.writers) return noun + listed(ranks);
    return join_parts(noun, listed(ranks), " of ", where.writers, " that hold pieces of it");
  }

  void wrong_numbers() const {
    for (const SaidCheck& check : found_.said) {
      if (check.is_right()) {
        row(check.name, strf("%.6g, right", check.said) +
                            (check.is_of_gradients ? " for these gradients" : ""));
        continue;
      }
      row(check.name, strf("said %.6g, and it is %.6g", check.said, check.right));
      if (!check.explained.empty() || found_.gradients_are_right())
        explained("explained by", check.explained);
    }
  }

  void explained(const char* label, const std::vector<Explanation>& all) const {
    if (!found_.unexplained.empty()) return row(label, found_.unexplained);
    if (all.empty()) return row(label, "nothing that is known here");
    for (std::size_t i = 0; i < all.size(); ++i)
      row(i == 0 ? label : "or by",
          join_parts(all[i].what, strf(" (residual %.1e)", all[i].residual)));
    std::string apart = all.front().apart;
    for (const Explanation& one : all) apart = apart.empty() ? one.apart : apart;
    if (all.size() > 1 && apart.empty()) apart = "another batch or layout";
    if (!apart.empty() &&
        (all.size() > 1 || all.front().what.find(audit::kOrBy) != std::string::npos))
      row("told apart by", apart);
  }

  const AuditFindings& found_;
  const Dump& dump_;
  Output& output_;
};

Json json_of(const std::vector<Explanation>& all) {
  return Json::list(all, [](const Explanation& one) {
    return Json::object({{"what", one.what},
                         {"fitted", one.fitted},
                         {"faults", one.parts},
                         {"residual", one.residual},
                         {"told_apart_by", one.apart}});
  });
}

Json json_of(const AuditFindings& found) {
  Json tensors = Json::array(), said = Json::array();
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    const Tensor& tensor = found.dump.gradients[i];
    const Compared& one = found.tensors[i];
    Json row = Json::object({{"name", tensor.name},
                             {"right", one.is_right()},
                             {"distance", one.relative()},
                             {"bound", one.reference == 0 ? one.bound : one.bound / one.reference},
                             {"ratio", one.ratio()}});
    if (!one.is_right()) {
      const auto where =
          audit::locate(found.dump, tensor, found.truth.gradients.at(tensor.name), one.bound);
      row.set("where", where.rows).set("ranks", Json::list(where.ranks));
    }
    tensors.push(std::move(row));
  }
  for (const SaidCheck& check : found.said)
    said.push(Json::object({{"name", check.name},
                            {"said", check.said},
                            {"reference", check.right},
                            {"bound", check.bound},
                            {"right", check.is_right()},
                            {"explained_by", json_of(check.explained)}}));
  return Json::object({{"schema", "lockstep.audit-verdict/1"},
                       {"dump", found.dump.path},
                       {"framework", found.dump.framework},
                       {"same_training", found.is_right()},
                       {"tensors", std::move(tensors)},
                       {"said", std::move(said)},
                       {"copies_differ", Json::list(found.dump.differ)},
                       {"explained_by", json_of(found.explained)},
                       {"unexplained", found.unexplained}});
}

}  // namespace

double SaidCheck::error() const {
  const double error = right == 0 ? std::abs(said) : std::abs(said / right - 1);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

bool AuditFindings::gradients_are_right() const {
  return std::ranges::all_of(tensors, &Compared::is_right);
}

bool AuditFindings::is_right() const {
  return gradients_are_right() && dump.differ.empty() &&
         std::ranges::all_of(said, &SaidCheck::is_right);
}

void print_audit(const AuditFindings& findings, const Args& args, Output& output) {
  if (output.json)
    print_json(output, json_of(findings));
  else
    Text(findings, output).print(args.flag("verbose"));
}

}  // namespace lockstep::cli
