// What `lockstep plan --explain` and --what-if print.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include "cli/help.h"
#include "cli/plan/report.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/planner/placement_rules.h"

namespace lockstep::cli {
namespace {

using planner::Alternative;

// "+12.3 %": how much longer a token takes. "0.0 %" has no sign.
std::string loss(const PlanRow& best, const planner::Finalist& other) {
  const double tokens =
      other.priced.request.global_batch / best.finalist.priced.request.global_batch;
  const double slower = other.seconds / (best.seconds() * tokens) - 1;
  return std::abs(slower) < 0.0005 ? "0.0 %" : strf("%+.1f %%", 100 * slower);
}

cost::StepTime scaled(cost::StepTime time, double factor) {
  for (double* term :
       {&time.forward, &time.backward, &time.recompute, &time.head, &time.tensor, &time.context,
        &time.expert, &time.pipe, &time.data, &time.bubble, &time.optimizer, &time.spread})
    *term *= factor;
  return time;
}

std::string reason(const PlanRow& best, const Alternative& other) {
  if (!other.found)
    return other.least_bytes > 0 ? "does not fit: needs " + gibibytes(other.least_bytes)
                                 : "does not divide the batch, layers or heads";
  const double tokens =
      other.found->priced.request.global_batch / best.finalist.priced.request.global_batch;
  return planner::difference(best.finalist.priced.price.time,
                             scaled(other.found->priced.price.time, 1 / tokens));
}

// A table whose last column is broken into lines that end inside the window.
void print_narrow(Rows rows, const std::string& sides, Output& output) {
  std::size_t at = 0;
  for (std::size_t i = 0; i + 1 < sides.size(); ++i)
    at += 2 + std::ranges::max(rows, {}, [i](const auto& row) { return row[i].size(); })[i].size();
  for (std::vector<std::string>& row : rows) {
    const int indent = static_cast<int>(at);
    row.back() = wrapped(row.back(), indent, indent, output.width);
    row.back().pop_back();  // the line end
  }
  print_table(output.out, rows, sides);
}

void print_alternatives(const PlanRow& best, const std::vector<Alternative>& list, bool is_near,
                        Output& output) {
  Rows rows;
  for (const Alternative& other : list)
    // A neighbour that is faster has more axes, and gains less than they are worth (finalists.h).
    rows.push_back({"  " + other.change,
                    !other.found                                       ? "-"
                    : is_near && other.found->seconds < best.seconds() ? "tied"
                                                                       : loss(best, *other.found),
                    reason(best, other)});
  if (!rows.empty()) print_narrow(std::move(rows), "lrl", output);
}

// The layout of a rule, and why the search left it.
std::vector<std::string> rule_row(const char* rule, const PlanRow& best, const Alternative& other) {
  const cost::PriceRequest& b = best.finalist.priced.request;
  if (!other.found) return {rule, "-", "", reason(best, other)};
  const cost::PriceRequest& a = other.found->priced.request;
  const bool same = a.tp == b.tp && a.pp == b.pp && a.cp == b.cp && a.zero == b.zero;
  return {rule, degrees_name(a), same ? "" : loss(best, *other.found),
          same ? "as found" : reason(best, other)};
}

std::string heading(const char* text, const Output& output) {
  return output.colour ? strf("\n\x1b[1m%s\x1b[0m\n", text) : strf("\n%s\n", text);
}

void print_rules(const planner::Question& question, const PlanRow& best, Output& output) {
  output.out << heading(
      "Placement by rule (tp inside a node until it fits, then across; the rest dp)", output);
  const Alternative stages = planner::rule_of_thumb(question),
                    shards = planner::sharding_rule(question);
  print_narrow({rule_row("  then pp", best, stages), rule_row("  then zero 3", best, shards)},
               "llrl", output);
}

}  // namespace

void print_explanation(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  const planner::Question& question = request.question;
  std::vector<Alternative> near = planner::neighbours(question, best.finalist);
  std::ranges::stable_sort(near, {}, [](const Alternative& other) {
    return other.found ? other.found->seconds : 1e300;
  });
  output.out << heading("Why not its neighbours (time of a token, and where it goes)", output);
  print_alternatives(best, near, true, output);

  output.out << heading("What more would buy", output);
  const double memory = cost::capacity_bytes(request.cluster.device);
  std::vector<Alternative> more = {
      planner::what_if(question, {planner::Resource::kMemory, (memory + kGib) / memory},
                       best.finalist),
      planner::what_if(question, {planner::Resource::kNetwork, 2}, best.finalist),
      planner::what_if(question, {planner::Resource::kScaleUp, 2}, best.finalist),
      planner::what_if(question, {planner::Resource::kBatch, 2}, best.finalist)};
  const char* titles[] = {"1 GiB more memory", "twice the network", "twice the scale-up network",
                          "twice the batch"};
  for (std::size_t i = 0; i < more.size(); ++i) more[i].change = titles[i];
  print_alternatives(best, more, false, output);

  std::vector<planner::Finalist> finalists;
  for (const PlanRow& row : answer.rows)
    if (row.devices == best.devices) finalists.push_back(row.finalist);
  Rows flips;
  for (const planner::Flip& flip : planner::flips(finalists))
    flips.push_back({"  " + std::string(to_text(flip.term)), strf("%+.0f %%", 100 * flip.change),
                     short_name(finalists[flip.winner])});
  output.out << heading("Rates whose error could change the choice", output);
  if (flips.empty())
    output.out << "  none, within their bands and among the layouts above\n";
  else
    print_narrow(std::move(flips), "lrl", output);

  print_rules(question, best, output);
}

void print_changes(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  output.out << heading("What if (time of a token, and the layout)", output);
  Rows rows;
  for (const planner::Change& change : request.changes) {
    const Alternative other = planner::what_if(request.question, change, best.finalist);
    rows.push_back({"  " + other.change, other.found ? loss(best, *other.found) : "-",
                    other.found ? short_name(*other.found) : reason(best, other)});
  }
  print_narrow(std::move(rows), "lrl", output);
}

}  // namespace lockstep::cli
