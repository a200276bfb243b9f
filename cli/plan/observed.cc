#include "cli/plan/observed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/plan/request.h"
#include "cli/table.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

using observe::Posterior;

// "1.35 of predicted +- 30 %, was 1 +- 80 %".
std::string factor_text(const Posterior::Learned& of) {
  return strf("%.2f of predicted +- %.0f %%, was 1 +- %.0f %%", of.now.p50(),
              100 * of.now.deviation, 100 * of.before);
}

Json factor_json(const char* part, const Posterior::Learned& of, std::string text) {
  return Json::object({{"part", part},
                       {"text", std::move(text)},
                       {"factor", of.now.p50()},
                       {"deviation", of.now.deviation},
                       {"before_deviation", of.before}});
}

}  // namespace

std::optional<Observed> Observed::read(const std::string& file, const PlanRequest& request,
                                       config::Report& report) {
  Observed made;
  made.read_ = read_observed_runs(file, request, report);
  if (!report.ok()) return std::nullopt;
  std::vector<observe::Observation> timed, held;
  for (const ObservedRun& run : made.read_.runs) {
    timed.push_back(run.time);
    if (run.memory) held.push_back(*run.memory);
  }
  made.learned_ = std::make_shared<Posterior>(observe::time_prior(), std::move(timed));
  if (!held.empty())
    made.memory_ = std::make_shared<Posterior>(observe::memory_prior(), std::move(held));
  if (made.read_.learned.is_object() && made.read_.learned != made.json()) {
    report.add(Error{Code::kBadRunTable,
                     join_parts(file, ": its runs no longer teach what it says"),
                     "another version wrote it, or it was edited: learn anew from the runs, with "
                     "--learned"});
    return std::nullopt;
  }
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

// By the reading that the runs say most of.
std::optional<observe::Belief> Observed::need(const planner::Priced& priced) const {
  std::optional<observe::Belief> best;
  for (const auto reading :
       {cost::Reading::kAllocated, cost::Reading::kReserved, cost::Reading::kShown}) {
    if (!memory_) break;
    const auto one = memory_->of(observe::memory_features(priced.request, priced.price, reading));
    if (!best || one.deviation < best->deviation) best = one;
  }
  return best;
}

std::string Observed::rows_of(std::size_t part) const {
  std::vector<std::pair<double, std::int64_t>> weights;
  for (std::size_t i = 0; i < read_.runs.size(); ++i)
    weights.emplace_back(-read_.runs[i].time.features.shares[part] * learned_->trust(i),
                         read_.runs[i].line());
  std::ranges::sort(weights);
  if (weights.front().first == 0) return "no run";
  std::vector<std::string> lines;
  for (const auto& [weight, line] : weights)
    if (weight <= 0.5 * weights.front().first && lines.size() < 3)
      lines.push_back(std::to_string(line));
  return (lines.size() > 1 ? "lines " : "line ") + listed(lines);
}

std::string Observed::told(std::size_t part) const {
  return join_parts(observe::kTimeParts[part], " ", factor_text(learned_->part(part)), "; from ",
                    rows_of(part));
}

std::vector<std::string> Observed::lines() const {
  const std::vector<ObservedRun>& runs = read_.runs;
  const auto number = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  std::vector<std::string> said = {join_parts("times follow ", counted(number(runs.size()), "run"),
                                              " of ", read_.file, ": all steps ",
                                              factor_text(learned_->level()))};
  // Parts that moved most, in the bands they had.
  std::vector<std::pair<double, std::size_t>> moved;
  for (std::size_t i = 0; i < observe::kParts; ++i)
    if (const auto [before, now] = learned_->part(i); std::abs(now.mean) > 0.1 * before)
      moved.emplace_back(-std::abs(now.mean) / before, i);
  std::ranges::sort(moved);
  for (std::size_t i = 0; i < std::min<std::size_t>(moved.size(), 3); ++i)
    said.push_back(told(moved[i].second));
  if (moved.empty()) said.emplace_back("no part of a step stands out among the others");
  if (memory_) said.push_back(join_parts("memory ", factor_text(memory_->level())));
  std::vector<std::string> more;
  int contradicting = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!learned_->contradicts(i)) continue;
    if (++contradicting > 2)
      more.push_back(std::to_string(runs[i].line()));
    else
      said.push_back(join_parts("line ", runs[i].line(),
                                " contradicts the others: ", runs[i].said.find("layout")->as_text(),
                                " took ", to_text(Seconds{runs[i].seconds()}), ", they say ",
                                to_text(Seconds{learned_seconds(i)}),
                                strf("; it counts for %.0f %%", 100 * learned_->trust(i))));
  }
  if (!more.empty()) {
    const std::size_t others = more.size();
    if (others > 8) more.resize(8), more.emplace_back("others");
    said.push_back(
        join_parts(counted(number(others), "other run"), " contradict, too: lines ", listed(more)));
  }
  return said;
}

double Observed::learned_seconds(std::size_t run) const {
  return read_.runs[run].seconds() * std::exp(-learned_->left(run));
}

Json Observed::json() const {
  Json runs = Json::array();
  for (std::size_t i = 0; i < read_.runs.size(); ++i)
    runs.push(Json(read_.runs[i].said)
                  .set("learned_s", learned_seconds(i))
                  .set("trust", learned_->trust(i))
                  .set("contradicts", learned_->contradicts(i)));
  Json parts = Json::array(
      {factor_json("all", learned_->level(), "all steps " + factor_text(learned_->level()))});
  for (std::size_t i = 0; i < observe::kParts; ++i)
    parts.push(factor_json(observe::kTimeParts[i], learned_->part(i), told(i)));
  if (memory_)
    parts.push(factor_json("memory", memory_->level(), "memory " + factor_text(memory_->level())));
  return Json::object({{"schema", kLearnedSchema},
                       {"file", read_.file},
                       {"learned", std::move(parts)},
                       {"runs", std::move(runs)}});
}

}  // namespace lockstep::cli
