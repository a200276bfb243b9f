#include "cli/plan/answer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "cli/plan/framework.h"
#include "cli/plan/report.h"
#include "cli/table.h"
#include "lockstep/backtest/unseen.h"
#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/lowered.h"
#include "lockstep/planner/seek.h"
#include "lockstep/spec/legal.h"

namespace lockstep::cli {
namespace {

bool runs_here(const PlanRequest& request, const planner::Finalist& finalist) {
  const cost::PriceRequest& priced = finalist.priced.request;
  const spec::Batch batch = {priced.seq, priced.global_batch, priced.microbatch};
  const spec::Layout layout = planner::layout_of(finalist);
  return spec::legal(request.model, layout, batch, DType::kBF16).empty();
}

class Answering {
 public:
  Answering(const Args& args, const PlanRequest& request, PlanAnswer& answer)
      : args_(args), request_(request), answer_(answer) {}

  void run() {
    const RealClock clock;
    if (request_.own) own();
    if (request_.only_own) {
      if (answer_.own) answer_.rows.push_back(*answer_.own);
      answer_.own.reset();
    } else if (request_.calibrated) {
      seek_timed();
    } else {
      seek(request_.question);
      if (args_.text("objective") != "time") seek_with_fewer();
    }
    for (PlanRow& row : answer_.rows)
      row.tied = planner::is_tied(row.finalist, answer_.rows.front().finalist);
    warn();
    answer_.all_s = clock.now().since_start.value;
  }

 private:
  void own() {
    const auto& [layout, microbatch] = *request_.own;
    const mesh::Degrees& d = layout.degrees;
    if (const std::int64_t ranks = d.tp * d.cp * d.pp * d.dp;
        !request_.only_own && ranks != request_.question.devices)
      return say(join_parts("your own layout is not compared: it is for ", counted(ranks, "device"),
                            ", not for ", with_commas(request_.question.devices)));
    if (request_.calibrated) return own_timed();
    if (const auto runs = check_layout(request_.question, layout, microbatch); !runs.ok())
      return say("your own layout is not compared: " + runs.error().message);
    const auto timed = planner::time_layout(request_.question, layout, microbatch);
    if (!timed.ok()) {
      LS_CHECK(!request_.only_own, "checked when it was read");
      return say("your own layout is not compared: " + timed.error().message);
    }
    answer_.own = row_of(args_, *timed);
    if (!request_.question.framework) planner::time_by_units({&answer_.own->finalist, 1});
    correct(*answer_.own);
    // What --risk says holds for every layout, what --headroom says for those that are sought.
    if (args_.has("risk"))
      answer_.own->finalist.priced.price.fits = answer_.own->out_of_memory() <= args_.real("risk");
    answer_.own->runs = runs_here(request_, answer_.own->finalist);
  }

  PlanRow timed_row(planner::TimedLayout timed) const {
    PlanRow row = row_of(args_, timed.finalist);
    row.runs = true;
    row.walked = std::move(timed.stages);
    return row;
  }

  void own_timed() {
    auto timed = request_.calibrated->time(request_.own->layout, request_.own->microbatch);
    if (timed.ok())
      answer_.own = timed_row(*std::move(timed));
    else if (request_.only_own)
      answer_.refused = timed.error();
    else
      say("your own layout is not timed: " + timed.error().message);
  }

  template <class T>
  void keep_top(std::vector<T>& best) const {
    if (const auto top = args_.integer("top"); std::ssize(best) > top)
      best.erase(best.begin() + top, best.end());
  }

  void seek_timed() {
    const RealClock clock;
    planner::CalibratedWalk found = request_.calibrated->walk();
    answer_.walk_s = clock.now().since_start.value;
    answer_.layouts = found.layouts;
    answer_.priced = answer_.simulated = found.timed;
    if (found.best.empty()) answer_.least_bytes = found.least_bytes;
    keep_top(found.best);
    for (planner::TimedLayout& timed : found.best)
      answer_.rows.push_back(timed_row(std::move(timed)));
    if (found.unknown.empty()) return;
    std::vector<std::string> parts;
    for (const auto& [what, layouts] : found.unknown)
      parts.push_back(join_parts(what, " (", counted(layouts, "layout"), ")"));
    const std::string what = parts.size() > 4 ? join_parts(parts[0], ", ", parts[1], ", ", parts[2],
                                                           " and ", parts.size() - 3, " others")
                                              : listed(parts);
    say(join_parts(with_commas(found.layouts - found.timed), " of ",
                   counted(found.layouts, "layout"),
                   " are not timed, for want of a calibration: ", what));
    if (answer_.rows.empty() && found.timed == 0)
      answer_.refused = Error{Code::kConflict, "the calibrations know none of the layouts: " + what,
                              "measure one with `lockstep calibrate`, and add --calibration FILE"};
  }

  void seek(const planner::Question& question) {
    std::vector<PlanRow> rows = within_risk(question);
    if (request_.observed) std::ranges::stable_sort(rows, {}, &PlanRow::seconds);
    keep_top(rows);
    std::ranges::move(rows, std::back_inserter(answer_.rows));
  }

  // Where runs say what memory a layout takes, each has a headroom of its own: sought at that of
  // each that was found, to a percent, from one that leaves out too much and one that leaves out
  // too little.
  std::vector<PlanRow> within_risk(planner::Question question) {
    constexpr double kMuch = -0.5, kFine = 0.01;
    constexpr std::size_t kMostSought = 16;
    const double risk = args_.has("risk") ? args_.real("risk")
                                          : observe::out_of_memory(observe::published_need(),
                                                                   1 - question.headroom, 1);
    std::vector<PlanRow> found, best;
    std::vector<double> tried, next = {question.headroom, kMuch};
    for (std::size_t i = 0; i < next.size() && tried.size() < kMostSought; ++i) {
      const auto is_near = [&](double other) { return std::abs(other - next[i]) < kFine; };
      if (std::ranges::any_of(tried, is_near)) continue;
      tried.push_back(question.headroom = next[i]);
      std::vector<PlanRow> rows = rows_at(question);
      if (!request_.observed || !request_.observed->says_memory()) return rows;
      for (PlanRow& row : rows) {
        next.push_back(observe::headroom_at(row.need, risk));
        if (answer_.least_bytes == 0 || row.device_bytes() < answer_.least_bytes)
          answer_.least_bytes = row.device_bytes();
        row.finalist.priced.price.fits = *row.out_of_memory() <= risk;
        if (row.finalist.priced.price.fits) found.push_back(std::move(row));
      }
    }
    std::ranges::stable_sort(found, {}, &PlanRow::seconds);
    for (PlanRow& row : found)
      if (std::ranges::none_of(best, [&](const PlanRow& other) {
            return planner::same_degrees(other.finalist.priced.request,
                                         row.finalist.priced.request);
          }))
        best.push_back(std::move(row));
    return best;
  }

  std::vector<PlanRow> rows_at(const planner::Question& question) {
    const RealClock clock;
    planner::Sought found = planner::seek(question);
    std::vector<planner::Finalist>& finalists = found.best;
    answer_.walk_s += clock.now().since_start.value;
    answer_.layouts += found.layouts;
    answer_.priced += found.priced;
    answer_.simulated += found.simulated;
    if (finalists.empty() && std::isfinite(found.least_bytes))
      answer_.least_bytes = found.least_bytes;
    if (!question.framework) planner::time_by_units(finalists);  // programs are this version's
    std::vector<PlanRow> rows;
    for (const planner::Finalist& finalist : finalists) {
      rows.push_back(row_of(args_, finalist));
      rows.back().runs = runs_here(request_, finalist);
      correct(rows.back());
    }
    return rows;
  }

  void correct(PlanRow& row) const {
    if (!request_.observed) return;
    if (const auto need = request_.observed->need(row.finalist.priced)) {
      cost::Price& price = row.finalist.priced.price;
      row.need = *need, row.need_factor = need->p50();
      price.memory = cost::scaled(price.memory, row.need_factor);
      price.fits = row.device_bytes() <= cost::capacity_bytes(request_.cluster.device);
    }
    row.observed = request_.observed->correct(row.finalist);
  }

  // Half as many devices, and half of that: where failures or money count, all of them may be too
  // many.
  void seek_with_fewer() {
    const auto& tiers = request_.cluster.tiers;
    const std::int64_t node = tiers.size() > 1 ? tiers[tiers.size() - 2].size : 1;
    for (std::int64_t count = request_.cluster.count;
         count % 2 == 0 && count / 2 >= node && count / 2 % node == 0;) {
      count /= 2;
      cluster::Cluster& cluster = answer_.clusters.emplace_back(request_.cluster);
      cluster.count = cluster.tiers.back().size = count;
      planner::Question& question = answer_.questions.emplace_back(request_.question);
      question.cluster = &cluster;
      question.devices = count;
      const std::size_t before = answer_.rows.size();
      seek(question);
      if (answer_.rows.size() == before) break;  // even fewer hold even less
    }
    const bool by_cost = args_.text("objective") == "cost";
    std::ranges::stable_sort(answer_.rows, {}, [&](const PlanRow& row) {
      const double useful = row.tokens_per_s() * row.goodput.share;
      return by_cost ? static_cast<double>(row.devices) / useful : -useful;
    });
    keep_top(answer_.rows);
  }

  void warn() {
    if (answer_.rows.empty()) return;
    for (const std::string& note : request_.notes) say(note);
    if (request_.observed)
      for (const std::string& line : request_.observed->lines()) say(line);
    const PlanRow& best = answer_.rows.front();
    const cost::PriceRequest& r = best.finalist.priced.request;
    if (!request_.filled.empty()) say("not said, so the best was sought: " + request_.filled);
    if (request_.only_own && !request_.calibrated && !best.finalist.priced.price.fits) {
      const auto fitting = planner::fitting_recompute(best.finalist);
      say(fitting ? join_parts("with recompute=", to_text(*fitting), " the layout would fit")
                  : "the layout does not fit whatever is recomputed");
    }
    if (!request_.only_own && !request_.calibrated) warn_of_batch(best);
    if (args_.has("critical-batch")) {
      const double tokens = r.step_tokens(), critical = args_.real("critical-batch");
      if (tokens > critical)
        say(strf(
            "a step of %s tokens is above the critical batch of %s: about %.0f %% of the tokens "
            "are spent on going faster, not on learning",
            with_commas(std::llround(tokens)).c_str(), with_commas(std::llround(critical)).c_str(),
            100 * tokens / (tokens + critical)));
    }
    warn_of_words(request_, answer_);
    if (!request_.question.rates->calibrated && !request_.calibrated)
      say(join_parts("rates of ", request_.cluster.device.name,
                     " are borrowed from another device: times are rough"));
  }

  void warn_of_batch(const PlanRow& best) {
    const cost::PriceRequest& r = best.finalist.priced.request;
    planner::Question question = request_.question;
    question.devices = best.devices;
    question.cluster = r.cluster;
    planner::Alternative twice =
        planner::what_if(question, {planner::Resource::kBatch, 2}, best.finalist);
    if (!twice.found) return;
    if (request_.observed) request_.observed->correct(*twice.found);
    const double gain = 2 * best.seconds() / twice.found->seconds - 1;
    if (gain < 0.03) return;
    const bool one = request_.question.global_batch == 1;
    say(join_parts("batch exhausted: ", counted(request_.question.global_batch, "sequence"),
                   one ? " leaves " : " leave ", counted(r.dp, "data-parallel rank"), " ",
                   counted(r.microbatches(), "microbatch"), r.dp > 1 ? " each" : "",
                   r.pp > 1 ? strf(" for %d pipeline stages", r.pp) : "",
                   strf("; twice the batch would train %.0f %% more tokens a second", 100 * gain)));
  }

  void say(std::string what) { answer_.warnings.push_back(std::move(what)); }

  const Args& args_;
  const PlanRequest& request_;
  PlanAnswer& answer_;
};

// Sequences that a step must have so that some layout divides the devices; 0: none would.
std::int64_t least_data(const planner::Question& question) {
  planner::Question any = question;
  any.global_batch = question.devices;  // whatever dp is
  const planner::Lattice lattice(any);
  std::int64_t least = 0;
  for (const planner::Core& core : lattice.cores())
    for (const int pp : lattice.pipelines(core)) {
      const std::int64_t dp = lattice.data(core, pp);
      if (least == 0 || dp < least) least = dp;
    }
  return least;
}

}  // namespace

PlanRow row_of(const Args& args, const planner::Finalist& finalist) {
  PlanRow row{.finalist = finalist};
  row.devices = static_cast<std::int64_t>(row.finalist.priced.request.devices());
  row.goodput =
      planner::goodput(static_cast<double>(row.devices), {.device_hours = args.real("mtbf"),
                                                          .save_s = args.real("save"),
                                                          .restart_s = args.real("restart")});
  return row;
}

double PlanRow::tokens_per_s() const {
  return finalist.priced.request.step_tokens() / finalist.seconds;
}

double PlanRow::mfu_causal() const {
  return finalist.priced.price.mfu_causal * finalist.priced.seconds() / finalist.seconds;
}

double PlanRow::mfu_full() const {
  return finalist.priced.price.mfu_full * finalist.priced.seconds() / finalist.seconds;
}

planner::StepQuantiles PlanRow::quantiles() const {
  if (observed) return {finalist.seconds, finalist.seconds * observed->p95() / observed->p50()};
  return planner::step_quantiles(finalist.seconds, finalist.priced.request.rates->calibrated);
}

PlanRow::Doubt PlanRow::doubt() const {
  // Of a normal distribution: half of it, and nine tenths.
  if (observed)
    return {std::exp(0.674 * observed->deviation), std::exp(1.645 * observed->deviation)};
  const backtest::UnseenSet& unseen = backtest::kUnseen.back();
  const auto inside = planner::published_errors(finalist.priced.request.rates->calibrated);
  return {std::exp(std::max(unseen.median, std::abs(inside.bias)) / 100),
          std::exp(std::max(unseen.p90, inside.p90) / 100)};
}

const char* PlanRow::peak_name() const {
  return finalist.priced.request.cluster->device.peak_bf16.known() ? "bf16" : "f16";
}

std::optional<double> PlanRow::out_of_memory() const {
  if (!walked.empty()) return std::nullopt;
  return observe::out_of_memory(need, device_bytes() / need_factor,
                                cost::capacity_bytes(finalist.priced.request.cluster->device));
}

namespace {

std::vector<cost::Memory> stages_if(const PlanRow& row, const cost::PriceRequest& r) {
  const planner::Stages stages = planner::stages_of(row.finalist);
  std::vector<cost::Memory> found;
  for (int rank = 0; rank < r.pp; ++rank)
    found.push_back(cost::scaled(row.finalist.simulated && r.chunks == 1
                                     ? planner::rank_memory(r, stages, rank)
                                     : cost::stage_memory(r, rank),
                                 row.need_factor));
  return found;
}

}  // namespace

std::vector<cost::Memory> PlanRow::stages() const {
  return walked.empty() ? stages_if(*this, finalist.priced.request) : walked;
}

double PlanRow::bytes_if_met(double times) const {
  cost::PriceRequest request = finalist.priced.request;
  request.imbalance *= times;
  double most = 0;
  for (const cost::Memory& stage : stages_if(*this, request))
    most = std::max(most, device_bytes(stage));
  return most;
}

RunCost run_cost(const Args& args, const PlanRow& row) {
  const double hours = args.real("tokens") / (row.tokens_per_s() * row.goodput.share) / 3600;
  RunCost cost{.days = hours / 24, .device_hours = hours * static_cast<double>(row.devices)};
  if (args.has("price")) cost.money = cost.device_hours * args.real("price");
  return cost;
}

void answer_plan(const Args& args, const PlanRequest& request, PlanAnswer& answer) {
  Answering(args, request, answer).run();
}

Error nothing_found(const PlanRequest& request, const PlanAnswer& answer) {
  const planner::Question& q = request.question;
  const std::string what = join_parts(request.model.name, " on ", counted(q.devices, "device"));
  if (answer.least_bytes > 0)
    return {Code::kNothingFits,
            join_parts(what, " does not fit: every layout needs at least ",
                       gibibytes(answer.least_bytes), " on some device, which has ",
                       gibibytes(cost::capacity_bytes(request.cluster.device)),
                       strf(" and keeps %.3g %% of them free", 100 * q.headroom)),
            "use more devices, devices with more memory, or a shorter seq"};
  const std::int64_t least = least_data(q);
  if (least > 0)
    return {Code::kNothingDivides,
            join_parts("global_batch = ", q.global_batch, " cannot be divided over ",
                       counted(q.devices, "device"), " by any layout of ", request.model.name),
            join_parts("the nearest global_batch: ",
                       std::max<std::int64_t>(1, (q.global_batch + least - 1) / least) * least,
                       "; or fewer devices")};
  return {Code::kNothingDivides,
          join_parts("no degrees divide ", counted(q.devices, "device"), " for ",
                     request.model.name, " and sequences of ", q.seq),
          "use a number of devices with more divisors, such as a multiple of 8"};
}

}  // namespace lockstep::cli
