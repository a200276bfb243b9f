// What `lockstep plan --explain`, --what-if and --memory print.
#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "cli/help.h"
#include "cli/plan_report.h"
#include "cli/table.h"
#include "lockstep/base/check.h"

namespace lockstep::cli {
namespace {

using search::Alternative;

// "+12.3 %": how much longer a token takes.
std::string loss(const PlanRow& best, const search::Finalist& other) {
  const double tokens =
      other.priced.request.global_batch / best.finalist.priced.request.global_batch;
  const double slower = other.seconds / (best.seconds() * tokens) - 1;
  return strf("%+.1f %%", 100 * slower);
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
                                 : "divides no batch, layers or heads";
  const double tokens =
      other.found->priced.request.global_batch / best.finalist.priced.request.global_batch;
  return search::difference(best.finalist.priced.price.time,
                            scaled(other.found->priced.price.time, 1 / tokens));
}

void print_alternatives(const PlanRow& best, const std::vector<Alternative>& list, Output& output) {
  Rows rows;
  for (const Alternative& other : list)
    rows.push_back(
        {"  " + other.change, other.found ? loss(best, *other.found) : "-", reason(best, other)});
  if (!rows.empty()) print_table(output.out, rows, "lrl");
}

std::string heading(const char* text, const Output& output) {
  return output.colour ? strf("\n\x1b[1m%s\x1b[0m\n", text) : strf("\n%s\n", text);
}

}  // namespace

void print_explanation(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  const search::Question& question = request.question;
  std::vector<Alternative> near = search::neighbours(question, best.finalist);
  std::ranges::stable_sort(near, {}, [](const Alternative& other) {
    return other.found ? other.found->seconds : 1e300;
  });
  output.out << heading("Why not its neighbours (time of a token, and where it goes)", output);
  print_alternatives(best, near, output);

  output.out << heading("What more would buy", output);
  const double memory = cost::capacity_bytes(request.cluster.device);
  std::vector<Alternative> more = {
      search::what_if(question, {search::Resource::kMemory, (memory + kGib) / memory}),
      search::what_if(question, {search::Resource::kNetwork, 2}),
      search::what_if(question, {search::Resource::kScaleUp, 2}),
      search::what_if(question, {search::Resource::kBatch, 2})};
  const char* titles[] = {"1 GiB more memory", "twice the network", "twice the scale-up network",
                          "twice the batch"};
  for (std::size_t i = 0; i < more.size(); ++i) more[i].change = titles[i];
  print_alternatives(best, more, output);

  std::vector<search::Finalist> finalists;
  for (const PlanRow& row : answer.rows)
    if (row.devices == best.devices) finalists.push_back(row.finalist);
  Rows flips;
  for (const search::Flip& flip : search::flips(finalists))
    flips.push_back({"  " + std::string(to_text(flip.term)), strf("%+.0f %%", 100 * flip.change),
                     short_name(finalists[flip.winner].priced.request)});
  output.out << heading("Rates whose error could change the choice", output);
  if (flips.empty())
    output.out << "  none, within their bands and among the layouts above\n";
  else
    print_table(output.out, flips, "lrl");

  const Alternative rule = search::rule_of_thumb(question);
  output.out << heading("Rule of thumb", output);
  std::string text =
      "tp inside a node until the model fits, then pp across nodes, the rest dp (arXiv "
      "2104.04473): ";
  if (!rule.found) {
    text += "nothing fits that way";
  } else {
    const cost::PriceRequest& a = rule.found->priced.request;
    const cost::PriceRequest& b = best.finalist.priced.request;
    const bool same = a.tp == b.tp && a.pp == b.pp && a.cp == b.cp;
    text += strf("tp %.0f, pp %.0f, dp %.0f", a.tp, a.pp, a.dp);
    const std::string why = reason(best, rule);
    text += same ? ", as found" : ", " + loss(best, *rule.found) + (why.empty() ? "" : ": " + why);
  }
  output.out << wrapped(text, 2, 0, output.width);
}

void print_changes(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  output.out << heading("What if", output);
  Rows rows;
  for (const search::Change& change : request.changes) {
    const Alternative other = search::what_if(request.question, change);
    rows.push_back({"  " + other.change, other.found ? loss(best, *other.found) : "-",
                    other.found ? short_name(other.found->priced.request) : reason(best, other)});
  }
  print_table(output.out, rows, "lrl");
}

// Each class begins where the one before ends, so that the last ends at what is held together.
void print_memory(const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  const cost::PriceRequest& r = best.finalist.priced.request;
  const cost::Memory& m = best.finalist.priced.price.memory;
  const double has = cost::capacity_bytes(r.cluster->device), device = cost::device_bytes(m);
  const auto classes = cost::classes_of(m);
  std::vector<cost::MemoryClass> parts(classes.begin(), classes.end());
  parts.push_back({"allocator", device - m.allocated()});
  output.out << heading(
      join_parts("Memory of ", r.pp > 1 ? strf("pipeline rank %d", m.stage) : "a device",
                 " at the ", cost::to_text(m.event), ", the fullest moment")
          .c_str(),
      output);
  constexpr std::array kColours = {33, 75, 111, 208, 220, 245, 240};
  const int width = std::max(20, output.width - 26);
  const double scale = width / std::max(has, device);
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto column = [&](double bytes) {
      return static_cast<std::size_t>(std::lround(bytes * scale));
    };
    const std::size_t begin = column(sum), end = std::max(begin, column(sum += parts[i].bytes));
    const std::string bar(end - begin, output.colour ? ' ' : '#');
    output.out << strf("  %-12s", parts[i].name) << std::string(begin, ' ')
               << (output.colour ? strf("\x1b[48;5;%dm", kColours[i]) + bar + "\x1b[0m" : bar)
               << std::string(static_cast<std::size_t>(width) - end, ' ')
               << strf("%7.1f GiB\n", parts[i].bytes / kGib);
  }
  const auto limit = static_cast<std::size_t>(std::lround(has * scale));
  output.out << strf("  of %-9s", gibibytes(has).c_str()) << std::string(limit, '-') << "|"
             << std::string(static_cast<std::size_t>(width) - limit, ' ')
             << strf("%6.1f GiB\n", device / kGib);
}

}  // namespace lockstep::cli
