// What a page of `lockstep plan --report` shows besides the answer itself: reasons, other machines,
// evidence, and what was assumed.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "cli/cluster/cluster_json.h"
#include "cli/parse.h"
#include "cli/plan/page.h"
#include "cli/plan/report.h"
#include "cli/verbs.h"
#include "lockstep/backtest/unseen.h"
#include "lockstep/base/check.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/draw/svg.h"
#include "lockstep/planner/explain.h"

namespace lockstep::cli {
namespace {

using planner::Alternative;

// The command line that asks this, without what it would be anyway.
std::string command_of(const Args& args) {
  std::string text = "lockstep plan";
  if (args.has("FILE")) text += " " + shell_word(args.text("FILE"));
  for (const Option& option : plan_verb().options) {
    if (option.value.empty() && args.flag(option.name)) text += " --" + option.name;
    if (!option.value.empty())
      for (const std::string& value : args.texts(option.name))
        if (value != option.initial) text += " --" + option.name + " " + shell_word(value);
  }
  return text;
}

Json terms_json(const PlanRow& best) {
  return Json::list(cost::kStepTerms, [&](const cost::StepTerm& term) {
    const double seconds = best.finalist.priced.price.time.*term.seconds;
    return Json::object({{"name", term.name},
                         {"what", term.meaning},
                         {"seconds", seconds},
                         {"share", best.share(seconds)}});
  });
}

// What a layout of the table loses against the best.
Json compared_json(const PlanRow& best, const PlanRow& row) {
  const cost::StepTime& time = row.finalist.priced.price.time;
  const std::string why = reason(best, {.found = row.finalist});
  return Json::object(
      {{"slower", slower(best, row.finalist)},
       {"bubble_share", row.share(row.finalist.bubble)},
       {"exposed_share", row.share(time.tensor + time.context + time.expert + time.data)},
       {"why", &row == &best                     ? "the answer"
               : !row.finalist.priced.price.fits ? "does not fit"
               : !why.empty()                    ? why
                              : "no term differs by half a percent of the step"}});
}

Json alternatives_json(const PlanRow& best, const std::vector<Alternative>& list) {
  return Json::list(list, [&](const Alternative& other) {
    Json json = Json::object({{"change", other.change}, {"found", other.found.has_value()}});
    if (other.found)
      json.set("name", short_name(*other.found))
          .set("step_s", other.found->seconds)
          .set("slower", slower(best, *other.found));
    return json.set("why", reason(best, other));
  });
}

// A neighbour that is faster has more axes, and gains less than they are worth (finalists.h).
Json neighbours_json(const PlanRequest& request, const PlanRow& best) {
  Json list = alternatives_json(best, near_to(request, best));
  for (Json& one : list.items())
    if (const Json* change = one.find("slower"); change != nullptr && change->as_real() < 0)
      one.set("why", "tied: the gain is less than another axis is worth");
  return list;
}

Json what_ifs_json(const PlanRequest& request, const PlanRow& best) {
  std::vector<Alternative> list = with_changes(request, best);
  std::ranges::move(with_more(request, best), std::back_inserter(list));
  return alternatives_json(best, list);
}

Json rules_json(const PlanRequest& request, const PlanRow& best) {
  std::vector<Alternative> rules = {planner::rule_of_thumb(request.question),
                                    planner::sharding_rule(request.question)};
  rules[0].change = "by rule: tp inside a node until it fits, then pp";
  rules[1].change = "by rule: tp inside a node until it fits, then ZeRO-3";
  return alternatives_json(best, rules);
}

Json flips_json(const PlanAnswer& answer) {
  const std::vector<planner::Finalist> finalists = of_as_many_devices(answer);
  return Json::list(planner::flips(finalists), [&](const planner::Flip& flip) {
    return Json::object({{"rate", to_text(flip.term)},
                         {"what", meaning_of(flip.term)},
                         {"change", flip.change},
                         {"winner", short_name(finalists[flip.winner])}});
  });
}

// Quantiles of the step's time, and of what a run then takes.
Json quantiles_json(const Args& args, const PlanRow& best) {
  const auto [half, most] = best.doubt();
  const double seconds = best.seconds();
  Json list = Json::array();
  for (const auto& [name, value] : {std::pair{"one run in twenty is faster", seconds / most},
                                    {"one run in four is faster", seconds / half},
                                    {"P50 of held-out sources", best.quantiles().p50},
                                    {"predicted", seconds},
                                    {"one run in four is slower", seconds * half},
                                    {"P95 of held-out sources", best.quantiles().p95},
                                    {"one run in twenty is slower", seconds * most}}) {
    Json json = Json::object({{"what", name}, {"step_s", value}});
    if (args.has("tokens")) {
      const RunCost cost = run_cost(args, best);
      const double longer = value / seconds;
      json.set("days", cost.days * longer).set("device_hours", cost.device_hours * longer);
      if (cost.money) json.set("money", *cost.money * longer);
    }
    list.push(std::move(json));
  }
  return list;
}

Json evidence_json(const PlanRow& best) {
  const auto errors = planner::published_errors(best.finalist.priced.request.rates->calibrated);
  return Json::object({{"held_out", Json::object({{"median_percent", errors.median},
                                                  {"p90_percent", errors.p90},
                                                  {"bias_percent", errors.bias}})},
                       {"unseen", Json::list(backtest::kUnseen, [](const backtest::UnseenSet& set) {
                          return Json::object({{"runs", set.runs},
                                               {"sources", set.sources},
                                               {"timed", set.timed},
                                               {"median_percent", set.median},
                                               {"p90_percent", set.p90},
                                               {"constant_utilisation_percent", set.constant},
                                               {"memory_rows", set.sized},
                                               {"memory_median_percent", set.memory},
                                               {"verdicts", set.verdicts},
                                               {"verdicts_right", set.right}});
                        })}});
}

Json rates_json(const cluster::DeviceRates& rates) {
  Json terms = Json::array();
  for (std::size_t i = 0; i < cluster::kNumTerms; ++i) {
    const auto term = static_cast<cluster::Term>(i);
    const cluster::Rate& rate = rates.terms[i];
    terms.push(Json::object({{"rate", to_text(term)},
                             {"what", meaning_of(term)},
                             {"value", rate.value},
                             {"band", rate.band},
                             {"source", rate.source}}));
  }
  return Json::object(
      {{"family", rates.family}, {"calibrated", rates.calibrated}, {"terms", std::move(terms)}});
}

Json stack_json(const cost::Stack& stack) {
  const auto row = [](const char* what, Json value) {
    return Json::object({{"what", what}, {"value", std::move(value)}});
  };
  return Json::array({row("fused attention", stack.flash),
                      row("data-parallel communication runs under passes", stack.overlap_data),
                      row("tensor-parallel collectives run under products", stack.overlap_tensor),
                      row("pipeline transfers run under passes", stack.overlap_pipe),
                      row("a fused kernel for the loss", stack.loss == cost::Loss::kFused),
                      row("bytes of a weight", stack.weight_bytes),
                      row("bytes of its gradient", stack.grad_bytes),
                      row("bytes of its optimizer states", stack.optimizer_bytes),
                      row("bytes of a gradient on the wire", stack.reduce_bytes),
                      row("idle moments between kernels, of compute", stack.gaps),
                      row("spread of the time of one pass", stack.jitter),
                      row("launch time, of eager Python's", stack.host_factor)});
}

std::optional<draw::Figure> timeline_of(const PlanRow& row) {
  constexpr int kLeast = 8;  // microbatches, so that a short pipeline is seen filled
  const cost::PriceRequest& r = row.finalist.priced.request;
  const int pp = r.pp;
  const auto passes = planner::timed_passes(row.finalist, pp * std::max(2, (kLeast + pp - 1) / pp));
  if (!passes) return std::nullopt;
  draw::Figure figure = draw::figure_of(passes->schedule, passes->times);
  figure.title = join_parts(r.schedule->name, ", ", passes->schedule.shape().microbatches, " of ",
                            r.microbatches(), " microbatches");
  return figure;
}

Json timeline_json(const PlanRow& row) {
  const std::optional<draw::Figure> figure = timeline_of(row);
  if (!figure) return {};
  return Json::object({{"title", figure->title},
                       {"shape", figure->shape},
                       {"step_s", figure->makespan.value},
                       {"bubble_s", draw::bubble(*figure).value},
                       {"peak_microbatches", draw::peak(*figure)}});
}

}  // namespace

Json report_json(const Args& args, const PlanRequest& request, const PlanAnswer& answer) {
  const PlanRow& best = answer.rows.front();
  const cost::PriceRequest& priced = best.finalist.priced.request;
  const auto compared = [&](const PlanRow& row) { return compared_json(best, row); };
  Json plans = Json::list(answer.rows, compared);
  for (std::size_t i = 0; i < answer.rows.size(); ++i) plans.items()[i].set("rank", i + 1);
  Json json = Json::object(
      {{"version", LOCKSTEP_VERSION},
       {"command", command_of(args)},
       {"tokens_per_step", priced.global_batch * priced.seq},
       {"tokens_per_s_per_device", best.tokens_per_s() / static_cast<double>(best.devices)},
       {"headroom", priced.headroom},
       {"usable_bytes", cost::room_bytes(priced)},
       {"terms", terms_json(best)},
       {"plans", std::move(plans)},
       {"neighbours", neighbours_json(request, best)},
       {"rules", rules_json(request, best)},
       {"what_if", what_ifs_json(request, best)},
       {"flips", flips_json(answer)},
       {"quantiles", quantiles_json(args, best)},
       {"evidence", evidence_json(best)},
       {"cluster", cluster_json(*priced.cluster)},
       {"rates", rates_json(*priced.rates)},
       {"stack", stack_json(priced.stack)},
       {"mtbf_device_hours", args.real("mtbf")},
       {"save_s", args.real("save")},
       {"restart_s", args.real("restart")},
       {"timeline", timeline_json(best)}});
  if (answer.own) json.set("own", compared(*answer.own));
  if (args.has("price")) json.set("price", args.real("price"));
  return json;
}

std::string timeline_svg(const PlanRow& row) {
  const std::optional<draw::Figure> figure = timeline_of(row);
  return figure ? draw::svg(*figure) : "";
}

}  // namespace lockstep::cli
