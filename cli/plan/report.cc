#include "cli/plan/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/draw/stacks.h"
#include "lockstep/model/flops.h"
#include "lockstep/planner/explain.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {
namespace {

using cost::PriceRequest;
using cost::StepTime;

std::string schedule_text(const PriceRequest& r) {
  return r.pp <= 1 ? "-" : planner::timetable_name({r.schedule, r.chunks});
}

std::string zero_text(const PriceRequest& r) {
  const bool hybrid = r.zero > 0 && r.shard_group() < r.dp * r.cp;
  return hybrid ? strf("%d/%d", r.zero, r.shard_group()) : strf("%d", r.zero);
}

// "8 ring": how many ranks share a sequence, and how they meet.
std::string context_text(const PriceRequest& r) {
  return r.cp > 1 ? join_parts(with_commas(r.cp), " ", to_text(r.context)) : "1";
}

double exposed(const StepTime& time) {
  return time.tensor + time.context + time.expert + time.data;
}

const PriceRequest& request_in(const PlanRow& row) { return row.finalist.priced.request; }

// Of blocks that are counted by stage, how many of all: "selective+full 12/80".
std::string recompute_text(const spec::Layout& layout, int layers) {
  const std::vector<int>& blocks = layout.recompute.blocks;
  if (blocks.empty()) return to_text(layout.recompute);
  const model::Drop rest = layout.recompute.drop.rest();
  return join_parts(rest == model::kKeepAll ? "" : spec::to_text(rest) + "+", "full ",
                    std::accumulate(blocks.begin(), blocks.end(), 0), "/", with_commas(layers));
}

using PlanColumns = std::vector<Column<PlanRow>>;

PlanColumns columns(std::int64_t devices) {
  const auto degree = [](int PriceRequest::* axis) {
    return [axis](const PlanRow& row) { return with_commas(request_in(row).*axis); };
  };
  return {
      {"devices", 'r', [](const PlanRow& row) { return with_commas(row.devices); }, 0,
       with_commas(devices)},
      {"tp", 'r', degree(&PriceRequest::tp)},
      {"cp", 'l', [](const PlanRow& row) { return context_text(request_in(row)); }, 0, "1"},
      {"pp", 'r', degree(&PriceRequest::pp)},
      {"dp", 'r', degree(&PriceRequest::dp)},
      {"ep", 'r', degree(&PriceRequest::ep), 0, "1"},
      {"etp", 'r', degree(&PriceRequest::etp), 0, "1"},
      {"zero", 'r', [](const PlanRow& row) { return zero_text(request_in(row)); }},
      {"schedule", 'l', [](const PlanRow& row) { return schedule_text(request_in(row)); }, 0, "-"},
      {"mbs x m", 'r',
       [](const PlanRow& row) {
         return join_parts(request_in(row).microbatch, "x", request_in(row).microbatches());
       },
       2},
      {"recompute", 'l',
       [](const PlanRow& row) {
         return recompute_text(planner::layout_of(row.finalist), request_in(row).shape->layers);
       },
       1, "none"},
      {"step", 'r', [](const PlanRow& row) { return to_text(Seconds{row.seconds()}); }},
      {"MFU", 'r', [](const PlanRow& row) { return strf("%.1f", 100 * row.mfu_causal()); }, 0, "",
       "MFU"},
      {"full", 'r', [](const PlanRow& row) { return strf("%.1f", 100 * row.mfu_full()); }, 7, "",
       "MFU without a causal mask (full)"},
      {"GiB", 'r',
       [](const PlanRow& row) {
         const double gib = row.device_bytes() / kGib;
         return strf(gib < 0.1 ? "%.1g" : "%.1f", gib);
       }},
      {"OOM", 'r',
       [](const PlanRow& row) {
         return row.walked.empty() ? strf("%.0f", 100 * *row.out_of_memory()) : "-";
       },
       9, "-", "runs like it that run out of memory (OOM)"},
      {"bubble", 'r',
       [](const PlanRow& row) { return strf("%.1f", 100 * row.share(row.finalist.bubble)); }, 4, "",
       "bubble (of the step; Megatron's (p-1)/m is of its work)"},
      {"comm", 'r',
       [](const PlanRow& row) {
         return strf("%.1f", 100 * row.share(exposed(row.finalist.priced.price.time)));
       },
       5, "", "exposed communication"},
      {"tokens/s", 'r', [](const PlanRow& row) { return amount(row.tokens_per_s()); }, 6},
      {"runs", 'l', [](const PlanRow& row) { return row.runs ? "yes" : "no"; }, 8},
  };
}

std::string percent_text(double share) { return strf("%.1f %%", 100 * share); }

class PlanReport {
 public:
  PlanReport(const Args& args, const PlanRequest& request, const PlanAnswer& answer, Output& output)
      : args_(args), request_(request), answer_(answer), output_(output) {}

  void print() {
    const planner::Question& q = request_.question;
    output_.out << output_.paint(style::kBold, request_.model.name + " on " + request_.cluster.name)
                << ": " << counted(q.global_batch, "sequence") << " of " << with_commas(q.seq)
                << " tokens a step"
                << (q.precision == cost::Precision::kFp8 ? ", fp8 products" : "")
                << (q.framework ? join_parts(", for ", q.framework->title) : "") << "\n\n";
    table();
    output_.out << "\n";
    best(answer_.rows.front());
    if (answer_.own) own(*answer_.own);
    for (const std::string& warning : answer_.warnings)
      output_.out << '\n'
                  << output_.paint(style::kYellow, "note") << "    "
                  << wrapped(warning, 8, 8, output_.width);
    counts();
  }

 private:
  void table() {
    PlanColumns shown = columns(request_.cluster.count);
    shown.insert(shown.begin(), {"", 'r', [this](const PlanRow& row) {
                                   return std::to_string(&row - answer_.rows.data() + 1);
                                 }});
    if (args_.has("tokens"))
      shown.push_back(
          {"days", 'r',
           [this](const PlanRow& row) { return strf("%.3g", run_cost(args_, row).days); }, 3});
    if (args_.has("price"))
      shown.push_back({"cost", 'r',
                       [this](const PlanRow& row) { return amount(*run_cost(args_, row).money); }});
    left_out_ = fit(shown, answer_.rows, output_.table_width);
    for (const Column<PlanRow>& column : shown)
      if (*column.percent_of != '\0') percents_.emplace_back(column.percent_of);
    print_table(output_.out, shown, answer_.rows);
  }

  void line(const char* title, const std::string& text) {
    output_.row(0, style::kCyan, 8, title, text);
  }

  void best(const PlanRow& row) {
    const planner::Finalist& f = row.finalist;
    const StepTime& time = f.priced.price.time;
    line(answer_.rows.size() > 1 ? "best" : "layout",
         to_text(planner::layout_of(f)) + (row.runs ? "" : "; priced, not runnable here"));
    const double compute = time.forward + time.backward + time.head;
    std::string text = to_text(Seconds{row.seconds()}) + (f.simulated ? " simulated" : "") + ":";
    std::vector<std::pair<const char*, double>> parts = {
        {"compute", compute}, {"recompute", time.recompute}, {"bubble and P2P", f.bubble},
        {"tp", time.tensor},  {"cp", time.context},          {"ep", time.expert},
        {"dp", time.data},    {"optimizer", time.optimizer}, {"slowest device", time.spread}};
    for (const auto& [name, seconds] : parts)
      if (row.share(seconds) >= 0.0005)
        text += join_parts(text.ends_with(':') ? " " : ", ", name, " ",
                           percent_text(row.share(seconds)));
    line("step", text);
    if (row.walked.empty()) range(row);
    line("speed",
         join_parts(amount(row.tokens_per_s()), " tokens/s; MFU ", percent_text(row.mfu_causal()),
                    " with a causal mask, ", percent_text(row.mfu_full()), " without, of the ",
                    row.peak_name(), " peak"));
    if (const PriceRequest& r = request_in(row); r.cp > 1)
      line("cp",
           join_parts("of ", r.cp, " ranks the busiest has ",
                      strf("%.3f", model::attention_imbalance(*model::describe(request_.model),
                                                              r.context, r.cp, r.seq)),
                      " x the mean in attention"));
    memory(row);
    if (const PriceRequest& r = request_in(row); r.ep > 1 && row.walked.empty())
      line("experts",
           join_parts(gibibytes(row.bytes_if_met(2)), " if those of a device meet twice their ",
                      "share of tokens, ", gibibytes(row.bytes_if_met(r.ep)), " if all"));
    budget(row);
  }

  void range(const PlanRow& row) {
    const planner::StepQuantiles quantiles = row.quantiles();
    const auto within = [&](double factor) {
      return join_parts(to_text(Seconds{row.seconds() / factor}), " to ",
                        to_text(Seconds{row.seconds() * factor}));
    };
    const char* source =
        row.observed
            ? " for nine of ten, by your runs; P50 "
            : " for nine of ten, as runs of sources never looked at were off; by held-out sources "
              "P50 ";
    std::string text = join_parts(within(row.doubt().half), " for half of runs, ",
                                  within(row.doubt().most), source, to_text(Seconds{quantiles.p50}),
                                  ", P95 ", to_text(Seconds{quantiles.p95}));
    if (row.finalist.by_units)
      text += join_parts("; op by op, as this version runs it, ",
                         to_text(Seconds{*row.finalist.by_units}));
    line("range", text);
  }

  void memory(const PlanRow& row) {
    const cost::Memory& m = row.finalist.priced.price.memory;
    const double has = cost::capacity_bytes(request_.cluster.device), device = row.device_bytes();
    std::string text = join_parts(
        gibibytes(device), " of ", gibibytes(has), " at the ", cost::to_text(m.event),
        row.finalist.priced.request.pp > 1 ? strf(" of pipeline rank %d:", m.stage) : ":");
    const auto add = [&](const cost::MemoryClass& part) {
      if (part.bytes >= 0.001 * device)
        text += join_parts(
            text.ends_with(':') ? " " : ", ", part.name, " ",
            device < 0.1 * kGib ? gibibytes(part.bytes) : strf("%.1f", part.bytes / kGib));
    };
    for (const cost::MemoryClass& part : cost::classes_of(m)) add(part);
    add({"reserve and context", device - m.allocated()});
    if (row.walked.empty()) {
      text += join_parts("; ", runs_out(row), ";");
      for (const std::string& name : cost::kReadings.names())
        text += join_parts(text.ends_with(';') ? " " : ", ", name, " ",
                           gibibytes(cost::read_bytes(m, *cost::kReadings.find(name))));
    }
    if (device > has) text += join_parts("; does not fit, ", gibibytes(device - has), " too much");
    line("memory", text);
  }

  void budget(const PlanRow& row) {
    std::string text = join_parts(percent_text(row.goodput.share), " of the time on ",
                                  counted(row.devices, "device"), ": a failure every ",
                                  to_text(Seconds{row.goodput.mtbf_s}), ", saves every ",
                                  to_text(Seconds{row.goodput.interval_s}));
    line("goodput", text);
    if (!args_.has("tokens")) return;
    const RunCost cost = run_cost(args_, row);
    text = join_parts(strf("%.3g", cost.days), " days for ", amount(args_.real("tokens")),
                      " tokens, ", amount(cost.device_hours), " device-hours");
    if (cost.money)
      text += join_parts(", ", amount(*cost.money), " at ", strf("%g", args_.real("price")),
                         " an hour");
    line("run", text);
  }

  void own(const PlanRow& row) {
    const double slower = row.seconds() / answer_.rows.front().seconds() - 1;
    const bool fits = row.finalist.priced.price.fits;
    output_.out << "\n";
    line("yours",
         join_parts(to_text(planner::layout_of(row.finalist)), ": ",
                    fits ? to_text(Seconds{row.seconds()})
                         : "does not fit, needs " + gibibytes(row.device_bytes()),
                    fits && slower > 0.0005 ? ", " + percent_text(slower) + " slower" : ""));
  }

  void counts() {
    if (request_.only_own) return;
    std::string text = with_commas(answer_.layouts) + " layouts, " + with_commas(answer_.priced);
    if (request_.calibrated)
      text +=
          join_parts(" timed op by op in ", to_text(Seconds{answer_.walk_s}), ". ",
                     listed(percents_), " in percent; times measured on ", request_.calibrated_on);
    else
      text += join_parts(" priced in ", to_text(Seconds{answer_.walk_s}), "; ",
                         with_commas(answer_.simulated), " simulated. ", listed(percents_),
                         " in percent; rates of ", request_.question.rates->family, ".");
    if (!left_out_.empty())
      text += join_parts(" Columns left out for want of width: ", listed(left_out_), ".");
    output_.out << "\n" << wrapped(text, 0, 0, output_.width);
  }

  const Args& args_;
  const PlanRequest& request_;
  const PlanAnswer& answer_;
  Output& output_;
  std::vector<std::string> percents_;  // columns of the table that are percent, in words
  std::vector<std::string> left_out_;  // titles of columns that the window has no room for
};

using planner::Alternative;

// "tp8 pp16 dp128 zero1".
std::string degrees_name(const cost::PriceRequest& r) {
  std::string text;
  for (const auto& [axis, degree] :
       {std::pair{"tp", r.tp}, {"cp", r.cp}, {"pp", r.pp}, {"dp", r.dp}, {"ep", r.ep}})
    if (degree > 1) text += strf("%s%s%d", text.empty() ? "" : " ", axis, degree);
  return text + (text.empty() ? "zero" : " zero") + zero_text(r);
}

// "+12.3 %": how much longer a token takes. "0.0 %" has no sign.
std::string loss(const PlanRow& best, const planner::Finalist& other) {
  return signed_percent(slower(best, other));
}

// Of a step, over those of the best.
double more_tokens(const planner::Finalist& other, const PlanRow& best) {
  return other.priced.request.step_tokens() / best.finalist.priced.request.step_tokens();
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
  return join_parts("\n", output.paint(style::kBold, text), "\n");
}

void print_rules(const planner::Question& question, const PlanRow& best, Output& output) {
  output.out << heading(
      "Placement by rule (tp inside a node until it fits, then across; the rest dp)", output);
  const Alternative stages = planner::rule_of_thumb(question),
                    shards = planner::sharding_rule(question);
  print_narrow({rule_row("  then pp", best, stages), rule_row("  then zero 3", best, shards)},
               "llrl", output);
}

draw::Stacks stacks_of(const PlanRow& row) {
  const cost::PriceRequest& r = row.finalist.priced.request;
  const bool is_small = row.device_bytes() < 0.1 * kGib;
  const double unit = is_small ? kGib / 1024 : kGib;
  draw::Stacks stacks;
  stacks.unit = is_small ? "MiB" : "GiB";
  stacks.limit = cost::capacity_bytes(r.cluster->device) / unit;
  stacks.limit_name = "a device has";
  for (const cost::MemoryClass& part : cost::classes_of(cost::Memory{}))
    stacks.parts.push_back({part.name, part.name[0]});
  stacks.parts.push_back({"reserve and context", 'r'});
  for (const cost::Memory& held : row.stages()) {
    draw::StackRow made{r.pp > 1 ? strf("%d", held.stage) : "", {}, {}};
    for (const cost::MemoryClass& part : cost::classes_of(held))
      made.sizes.push_back(part.bytes / unit);
    made.sizes.push_back((row.device_bytes(held) - held.allocated()) / unit);
    made.note = cost::to_text(held.event);
    stacks.rows.push_back(std::move(made));
  }
  return stacks;
}

}  // namespace

std::string short_name(const planner::Finalist& finalist) {
  const cost::PriceRequest& r = finalist.priced.request;
  std::string text = degrees_name(r);
  if (r.pp > 1) text += " " + schedule_text(r);
  if (r.cp > 1) text += join_parts(" cp_comm_type=", to_text(r.context));
  const std::string recompute = recompute_text(planner::layout_of(finalist), r.shape->layers);
  return recompute == "none" ? text : text + " recompute=" + recompute;
}

double slower(const PlanRow& best, const planner::Finalist& other) {
  return other.seconds / (best.seconds() * more_tokens(other, best)) - 1;
}

std::string signed_percent(double share) {
  return std::abs(share) < 0.0005 ? "0.0 %" : strf("%+.1f %%", 100 * share);
}

std::string reason(const PlanRow& best, const Alternative& other) {
  if (!other.found)
    return other.least_bytes > 0 ? "does not fit: needs " + gibibytes(other.least_bytes)
                                 : "does not divide the batch, layers or heads";
  const double fewer = 1 / more_tokens(*other.found, best);
  cost::StepTime time = other.found->priced.price.time;
  for (const cost::StepTerm& term : cost::kStepTerms) time.*term.seconds *= fewer;
  return planner::difference(best.finalist.priced.price.time, time);
}

void print_plan(const Args& args, const PlanRequest& request, const PlanAnswer& answer,
                Output& output) {
  PlanReport(args, request, answer, output).print();
}

std::string amount(double value) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  std::size_t step = 0;
  for (; value >= 999.5 && step + 1 < std::size(kPrefixes); ++step) value /= 1000;
  return strf("%.3g", value) + kPrefixes[step];
}

std::string runs_out(const PlanRow& row) {
  const double share = row.out_of_memory().value_or(0);
  return join_parts(
      "out of memory in ",
      share < 0.001 ? "less than 0.1 %" : strf(share < 0.0995 ? "%.2g %%" : "%.0f %%", 100 * share),
      " of runs like it");
}

std::string gibibytes(double bytes) {
  return bytes < 0.1 * kGib ? to_text(Bytes{std::llround(bytes)}) : strf("%.1f GiB", bytes / kGib);
}

std::vector<Alternative> near_to(const PlanRequest& request, const PlanRow& best) {
  std::vector<Alternative> near = planner::neighbours(request.question, best.finalist);
  std::ranges::stable_sort(near, {}, [](const Alternative& other) {
    return other.found ? other.found->seconds : 1e300;
  });
  return near;
}

std::vector<Alternative> with_more(const PlanRequest& request, const PlanRow& best) {
  const planner::Question& question = request.question;
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
  return more;
}

std::vector<Alternative> with_changes(const PlanRequest& request, const PlanRow& best) {
  std::vector<Alternative> list;
  for (const planner::Change& change : request.changes)
    list.push_back(planner::what_if(request.question, change, best.finalist));
  return list;
}

std::vector<planner::Finalist> of_as_many_devices(const PlanAnswer& answer) {
  std::vector<planner::Finalist> finalists;
  for (const PlanRow& row : answer.rows)
    if (row.devices == answer.rows.front().devices) finalists.push_back(row.finalist);
  return finalists;
}

void print_explanation(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  output.out << heading("Why not its neighbours (time of a token, and where it goes)", output);
  print_alternatives(best, near_to(request, best), true, output);

  output.out << heading("What more would buy", output);
  print_alternatives(best, with_more(request, best), false, output);

  const std::vector<planner::Finalist> finalists = of_as_many_devices(answer);
  Rows flips;
  for (const planner::Flip& flip : planner::flips(finalists))
    flips.push_back({"  " + std::string(to_text(flip.term)), strf("%+.0f %%", 100 * flip.change),
                     short_name(finalists[flip.winner])});
  output.out << heading("Rates whose error could change the choice", output);
  if (flips.empty())
    output.out << "  none, within their bands and among the layouts above\n";
  else
    print_narrow(std::move(flips), "lrl", output);

  print_rules(request.question, best, output);
}

void print_changes(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  output.out << heading("What if (time of a token, and the layout)", output);
  Rows rows;
  for (const Alternative& other : with_changes(request, best))
    rows.push_back({"  " + other.change, other.found ? loss(best, *other.found) : "-",
                    other.found ? short_name(*other.found) : reason(best, other)});
  print_narrow(std::move(rows), "lrl", output);
}

void print_memory(const PlanAnswer& answer, Output& output) {
  const PlanRow& best = answer.rows.front();
  const bool has_stages = best.finalist.priced.request.pp > 1;
  const char* title = has_stages ? "Memory of pipeline ranks, each at its fullest moment"
                                 : "Memory of a device at its fullest moment";
  output.out << heading(title, output)
             << draw::terminal(stacks_of(best), {.width = output.width, .colour = output.colour});
}

std::string memory_svg(const PlanRequest& request, const PlanRow& row) {
  draw::Stacks stacks = stacks_of(row);
  stacks.title = join_parts("Memory of ", request.model.name, " on ", request.cluster.name, ": ",
                            to_text(planner::layout_of(row.finalist)));
  return draw::svg(stacks);
}

ExitCode print_fits(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow* const row = answer.rows.empty() ? nullptr : &answer.rows.front();
  const bool fits = row != nullptr && row->finalist.priced.price.fits;
  const double has = cost::capacity_bytes(request.cluster.device);
  const double needs = row != nullptr ? row->device_bytes() : answer.least_bytes;
  const bool is_guess = row != nullptr && row->walked.empty();
  const std::string layout =
      row != nullptr ? to_text(planner::layout_of(row->finalist)) : std::string();
  if (output.json)
    print_json(output,
               Json::object({{"schema", "lockstep.plan-fits/1"},
                             {"fits", fits},
                             {"layout", row != nullptr ? Json(layout) : Json()},
                             {"device_bytes", needs > 0 ? Json(needs) : Json()},
                             {"out_of_memory", is_guess ? Json(*row->out_of_memory()) : Json()},
                             {"device_has_bytes", has}}));
  else if (row != nullptr)
    output.out << (fits ? "fits: " : "does not fit: ") << gibibytes(needs) << " of "
               << gibibytes(has) << (is_guess ? ", " + runs_out(*row) : "") << ", " << layout
               << "\n";
  else
    output.out << "does not fit: "
               << (needs > 0 ? join_parts("every layout needs at least ", gibibytes(needs), " of ",
                                          gibibytes(has),
                                          strf(", %.3g %% of them kept free",
                                               100 * request.question.headroom))
                             : nothing_found(request, answer).message)
               << "\n";
  return fits ? ExitCode::kOk : ExitCode::kCheckFailed;
}

}  // namespace lockstep::cli
