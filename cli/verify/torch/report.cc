#include "cli/verify/torch/report.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "cli/help.h"
#include "cli/table.h"
#include "lockstep/spec/layout_space.h"

namespace lockstep::cli {
namespace {

using verify::Verdict;

std::string error_text(double error) { return error == 0 ? "0" : strf("%.1e", error); }

// Of the larger error in proportion to its bound. What a free run can reach is no bound that is
// held to.
double share_of_bound(const Verdict& verdict) {
  const auto share = [](double error, double bound) { return error == 0 ? 0 : error / bound; };
  const double run = verdict.bounds.far > 0 ? 0 : share(verdict.run_error, verdict.bounds.run);
  return std::max(share(verdict.step_error, verdict.bounds.step), run);
}

// The power of ten above, in wide steps, so that another machine's rounding is written alike.
std::string magnitude(double error, double bound) {
  for (const double limit : {bound / 10, bound})
    if (error < limit) return strf("< %.2g", limit);
  return error_text(error);
}

std::string memory_text(const Verdict& verdict) {
  if (verdict.worst_peak_error == 0) return "exact";
  return strf("%.2g %% off", 100 * verdict.worst_peak_error);
}

struct Tally {
  std::string value;
  int layouts = 0, failed = 0;
  double step_error = 0, run_error = 0;
};

// One per value: numbers ascending, words as they first appear.
template <class Value>
std::vector<Tally> tally(const std::vector<Verdict>& verdicts, const Value& value_of) {
  std::vector<Tally> tallies;
  for (const Verdict& verdict : verdicts) {
    const std::string value = value_of(verdict);
    auto sum = std::ranges::find(tallies, value, &Tally::value);
    if (sum == tallies.end()) sum = tallies.insert(sum, Tally{.value = value});
    ++sum->layouts;
    sum->failed += verdict.ok() ? 0 : 1;
    sum->step_error = std::max(sum->step_error, verdict.step_error);
    sum->run_error = std::max(sum->run_error, verdict.run_error);
  }
  const auto is_number = [](const Tally& sum) {
    return sum.value.find_first_not_of("0123456789") == std::string::npos;
  };
  if (std::ranges::all_of(tallies, is_number))
    std::ranges::sort(tallies, {}, [](const Tally& sum) { return std::stoll(sum.value); });
  return tallies;
}

// A factor that does not vary says nothing.
void add_rows(const std::string& name, const std::vector<Tally>& tallies, Rows& rows) {
  if (tallies.size() < 2) return;
  bool first = true;
  for (const Tally& sum : tallies) {
    rows.push_back({first ? "  " + name : "", sum.value, with_commas(sum.layouts),
                    sum.failed == 0 ? "-" : with_commas(sum.failed), error_text(sum.step_error),
                    error_text(sum.run_error)});
    first = false;
  }
}

}  // namespace

VerifyReport::VerifyReport(const VerifyRequest& request, Circumstances around, Style style,
                           Output& output)
    : request_(request), around_(std::move(around)), style_(style), output_(output) {}

std::string VerifyReport::heading() const {
  const spec::Train& train = request_.spec.train;
  const bool is_one = request_.ranks == std::vector<std::string>{"1"};
  return join_parts(counted(std::ssize(request_.layouts), "layout"), " on ", listed(request_.ranks),
                    is_one ? " rank, " : " ranks, ", counted(train.steps, "step"),
                    request_.layouts.size() == 1 ? ", " : " each, ", to_text(train.dtype));
}

void VerifyReport::begin(const model::Model& model) const {
  if (style_.form != Form::kText) return;
  const model::ModelConfig& c = model.config;
  const spec::Batch& batch = request_.spec.batch;
  output_.out << output_.paint(style::kBold, heading()) << "\n\n";
  print_row("model",
            join_parts(c.name.empty() ? "" : c.name + ": ", counted(c.layers, "layer"), ", hidden ",
                       c.hidden, ", vocabulary ", c.vocab, c.tied ? ", tied" : "", "; ",
                       counted(count(model).total, "parameter")));
  print_row("batch",
            join_parts(counted(batch.global_batch, "sequence"), " of ", counted(batch.seq, "token"),
                       ", labels that count: ", to_text(request_.labels)));
  if (c.moe.experts > 0) print_row("routing", std::string(to_text(request_.routing)));
  if (!request_.selection.empty()) print_row("layouts", request_.selection);
  print_row("ranks", around_.ranks_are);
  const bool some_share_units = std::ranges::any_of(
      request_.layouts, [](const spec::Layout& layout) { return layout.degrees.tp > 1; });
  print_row("bounds",
            request_.spec.train.dtype == DType::kBF16
                ? "a step: another order of sums in f32 than one rank's, and twice its distance to "
                  "the same step in f64"
            : request_.spec.train.dtype == DType::kF32
                ? "a step: twice the distance of one rank to the same step in f64"
                : join_parts("1e-12 for the gradients of a step, 1e-10 for parameters at the end",
                             some_share_units ? "; 1e-10 and 1e-8 where tp is above 1" : ""));
  print_row("kernels", around_.strict
                           ? "strict: layouts of one class must have equal bits"
                           : "not strict on this machine: layouts must be close, bits may differ");
  output_.out << std::endl;
}

void VerifyReport::print_row(const char* label, const std::string& text) const {
  output_.row(2, style::kDim, 11, label, text);
}

void VerifyReport::running(const spec::Layout& layout) {
  std::string line = join_parts("  ", verdicts_.size() + 1, "/", request_.layouts.size(), "  ");
  if (const int bad = failed(); bad > 0) line += join_parts("(", bad, " failed)  ");
  line += to_text(layout);
  if (output_.live) {
    output_.status(line.substr(0, static_cast<std::size_t>(output_.width) - 1));
  } else if (const Seconds now = clock_.now().since_start;
             style_.form != Form::kJson && now - told_ >= Seconds{30}) {
    output_.err << line << std::endl;
    told_ = now;
  }
}

void VerifyReport::clear_line() const {
  if (output_.live) output_.status("");
}

void VerifyReport::add(Verdict verdict) {
  verdicts_.push_back(std::move(verdict));
  if (style_.form == Form::kText && (style_.every_layout || !verdicts_.back().ok()))
    print_line(verdicts_.back());
}

void VerifyReport::print_line(const Verdict& verdict) const {
  clear_line();
  if (!verdict.ok()) {
    output_.out << "  " << output_.paint(style::kRed, "FAILED") << "  " << verdict.name
                << "\n          " << verdict.failure << std::endl;
    return;
  }
  output_.out << "  " << output_.paint(style::kGreen, "ok") << "      "
              << strf("%-46s  %8s  %8s  %s  %s", verdict.name.c_str(),
                      error_text(verdict.step_error).c_str(), error_text(verdict.run_error).c_str(),
                      memory_text(verdict).c_str(), to_text(verdict.time).c_str())
              << std::endl;
}

void VerifyReport::conclude(Seconds time) {
  clear_line();
  if (style_.form == Form::kJson) print_json(output_, json(time));
  if (style_.form == Form::kMarkdown) print_markdown();
  if (style_.form != Form::kText) return;
  const bool has_lines = style_.every_layout || failed() > 0;
  if (has_lines) output_.out << '\n';
  if (verdicts_.size() > 1) print_factors();
  if (!verdicts_.empty()) print_summary(time);
}

void VerifyReport::print_factors() const {
  Rows rows = {{"  setting", "", "layouts", "failed", "gradients", "parameters"}};
  add_rows("ranks", tally(verdicts_, [](const Verdict& v) { return std::to_string(v.ranks); }),
           rows);
  std::vector<spec::Layout> layouts;
  for (const Verdict& verdict : verdicts_) layouts.push_back(verdict.layout);
  for (const spec::Factor& factor : spec::factors(layouts))
    add_rows(std::string(factor.name),
             tally(verdicts_, [&](const Verdict& v) { return factor.value(v.layout); }), rows);
  if (rows.size() == 1) return;
  print_table(output_.out, rows, "llrrrr");
  output_.out << '\n';
}

void VerifyReport::print_summary(Seconds time) const {
  const Verdict& worst = this->worst();
  print_row("errors",
            join_parts("at most ", error_text(largest(&Verdict::step_error)),
                       " in the gradients of a step, ", error_text(largest(&Verdict::run_error)),
                       worst.bounds.far > 0 ? " of how far apart AdamW can take two runs"
                                            : " in parameters at the end"));
  if (!worst.where.empty())
    print_row("worst", join_parts(strf("%.2g %% of its bound: ", 100 * share_of_bound(worst)),
                                  worst.where, " of ", worst.name));
  if (around_.strict)
    print_row("bits", num_classes() == static_cast<int>(verdicts_.size())
                          ? "no two layouts of one class to compare"
                          : join_parts(counted(num_classes(), "class"),
                                       " of equal tensor and data degree, microbatch and reduction",
                                       failed() == 0 ? ": equal bits in each" : ""));
  double sum = 0;
  int as_predicted = 0;
  for (const Verdict& verdict : verdicts_) {
    sum += verdict.worst_peak_error;
    as_predicted += verdict.as_predicted ? 1 : 0;
  }
  const double most = largest(&Verdict::worst_peak_error);
  const auto all = static_cast<double>(verdicts_.size());
  print_row("memory", most == 0
                          ? "every peak as predicted, to the byte"
                          : strf("peaks %.2g %% from their prediction on average, %.2g %% at worst",
                                 100 * sum / all, 100 * most));
  print_row("traffic", as_predicted == static_cast<int>(verdicts_.size())
                           ? "every byte sent as predicted"
                           : join_parts("as predicted in ", as_predicted, " of ", verdicts_.size(),
                                        " layouts"));
  const std::string layouts = counted(std::ssize(verdicts_), "layout");
  output_.out << '\n'
              << (verdicts_.size() < request_.layouts.size() ? "stopped as asked; " : "")
              << (failed() == 0 ? output_.paint(style::kGreen, "verified ") + layouts
                                : output_.paint(style::kRed,
                                                join_parts(failed(), " of ", layouts, " failed")))
              << " in " << to_text(time) << '\n';
}

void VerifyReport::print_markdown() const {
  output_.out << heading() << (request_.selection.empty() ? "" : ": " + request_.selection) << ". "
              << (failed() == 0 ? "All verified." : join_parts(failed(), " failed.")) << "\n\n"
              << "| layout | ranks | gradients | parameters | peak memory | class of equal bits |\n"
              << "| --- | ---: | --- | --- | --- | --- |\n";
  for (const Verdict& verdict : verdicts_)
    output_.out << "| `" << verdict.name << "` | " << verdict.ranks << " | "
                << (verdict.ok() ? magnitude(verdict.step_error, verdict.bounds.step)
                                 : "**" + verdict.failure + "**")
                << " | " << magnitude(verdict.run_error, verdict.bounds.run) << " | "
                << memory_text(verdict) << " | "
                << (around_.strict ? verdict.bits_class : "not compared") << " |\n";
}

Json VerifyReport::json(Seconds time) const {
  return Json::object({{"schema", "lockstep.verify/1"},
                       {"model", request_.spec.model.name},
                       {"tied", request_.spec.model.tied},
                       {"dtype", to_text(request_.spec.train.dtype)},
                       {"steps", request_.spec.train.steps},
                       {"labels", to_text(request_.labels)},
                       {"routing", to_text(request_.routing)},
                       {"ranks_are", around_.ranks_are},
                       {"strict_kernels", around_.strict},
                       {"layouts", request_.layouts.size()},
                       {"failed", failed()},
                       {"classes", num_classes()},
                       {"worst_error", largest(&Verdict::step_error)},
                       {"worst_run_error", largest(&Verdict::run_error)},
                       {"seconds", time.value},
                       {"rows", Json::list(verdicts_, [](const Verdict& v) {
                          return Json::object({{"name", v.name},
                                               {"ranks", v.ranks},
                                               {"step_error", v.step_error},
                                               {"run_error", v.run_error},
                                               {"step_bound", v.bounds.step},
                                               {"run_bound", v.bounds.run},
                                               {"where", v.where},
                                               {"failure", v.ok() ? Json() : Json(v.failure)},
                                               {"peak_bytes", v.peak_bytes},
                                               {"predicted_peak_bytes", v.predicted_peak},
                                               {"worst_peak_error", v.worst_peak_error},
                                               {"as_predicted", v.as_predicted},
                                               {"seconds", v.time.value},
                                               {"class", v.bits_class},
                                               {"digest", to_hex(v.digest)}});
                        })}});
}

int VerifyReport::failed() const {
  return static_cast<int>(
      std::ranges::count_if(verdicts_, [](const Verdict& v) { return !v.ok(); }));
}

int VerifyReport::num_classes() const {
  std::set<std::string> classes;
  for (const Verdict& verdict : verdicts_)
    if (!verdict.bits_class.empty()) classes.insert(verdict.bits_class);
  return static_cast<int>(classes.size());
}

// That of the largest error in proportion to its bound.
const Verdict& VerifyReport::worst() const {
  return *std::ranges::max_element(verdicts_, {}, share_of_bound);
}

double VerifyReport::largest(double Verdict::* error) const {
  double most = 0;
  for (const Verdict& verdict : verdicts_) most = std::max(most, verdict.*error);
  return most;
}

}  // namespace lockstep::cli
