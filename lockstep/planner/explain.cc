#include "lockstep/planner/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::planner {
namespace {

using cost::PriceRequest;
using cost::StepTime;

// As few blocks as it takes to fit, if any number does.
bool remake_least(PriceRequest& r) {
  const std::optional<int> least = cost::least_recomputed(r);
  if (least) r.set_recomputed(*least);
  return least.has_value();
}

// By a short walk.
Alternative best_of(const Question& question, std::string change) {
  const Walk found = walk(Lattice(question), 8, 1.05);
  Alternative answer{.change = std::move(change)};
  if (found.best.empty())
    answer.least_bytes = std::isfinite(found.least_bytes) ? found.least_bytes : 0;
  else
    answer.found = simulate(found.best).front();
  return answer;
}

class Neighbours {
 public:
  Neighbours(const Question& question, const Finalist& chosen)
      : question_(question),
        lattice_(question),
        chosen_(chosen.priced.request),
        recompute_(layout_of(chosen).recompute) {}

  std::vector<Alternative> take() {
    if (!question_.given.core) degrees();
    policies();
    return std::move(found_);
  }

 private:
  void degrees() {
    const PriceRequest& r = chosen_;
    for (const bool is_more : {false, true}) {
      // An odd degree has no half.
      const auto other = [&](std::int64_t value) {
        return is_more ? value * 2 : value % 2 == 0 ? value / 2 : 0;
      };
      degree("tp", other(r.tp), &Question::tp);
      degree("pp", other(r.pp), &Question::pp);
      degree("cp", other(r.cp), &Question::cp);
      if (r.shape->has_experts()) degree("ep", other(r.ep), &Question::ep);
    }
  }

  // The other degrees stay, and so does one that is given; dp takes what is left.
  void degree(const char* axis, std::int64_t value, int Question::* member) {
    if (value < 1 || value > cluster::kMaxDevices || question_.*member != 0) return;
    Question asked = question_;
    asked.tp = chosen_.tp, asked.cp = chosen_.cp, asked.pp = chosen_.pp, asked.ep = chosen_.ep;
    asked.*member = static_cast<int>(value);
    Alternative answer = best_of(asked, join_parts(axis, " ", value));
    if (answer.found && member == &Question::cp && value > 1)
      answer.change += join_parts(" (", to_text(answer.found->priced.request.context), ")");
    found_.push_back(std::move(answer));
  }

  void policies() {
    const Core core{chosen_.tp, chosen_.cp, chosen_.ep, chosen_.etp, chosen_.context};
    for (const std::int64_t b : lattice_.microbatches(chosen_.dp))
      if (b == chosen_.microbatch * 2 || b * 2 == chosen_.microbatch)
        policy(join_parts("microbatch ", b), [&](PriceRequest& r) { r.microbatch = b; });
    for (const Sharding& s : lattice_.shardings(core, chosen_.pp))
      if (s.zero != chosen_.zero || s.group != chosen_.shard_group())
        policy(s.group < chosen_.dp * chosen_.cp ? strf("zero %d over %d", s.zero, s.group)
                                                 : strf("zero %d", s.zero),
               [&](PriceRequest& r) { set_sharding(question_, s, r); });
    for (const model::CpMethod way : lattice_.contexts(chosen_.tp, chosen_.cp))
      if (way != chosen_.context)
        policy(join_parts("cp_comm_type ", to_text(way)),
               [&](PriceRequest& r) { r.context = way; });
    if (!question_.given.drop)
      for (const model::Drop& drop : lattice_.drops()) recompute(drop);
    for (const Timetable& t : lattice_.timetables(chosen_.pp))
      if (t.schedule != chosen_.schedule || t.chunks != chosen_.chunks) timetable(t);
    for (const cost::Placement placement : lattice_.placements(core, chosen_.pp))
      if (placement != chosen_.placement)
        policy(placement == cost::Placement::kPipeInside ? "rank order tp,cp,pp,dp"
                                                         : "rank order tp,cp,dp,pp",
               [&](PriceRequest& r) { r.placement = placement; });
  }

  void recompute(const model::Drop& drop) {
    PriceRequest made = chosen_;
    made.drop = drop, made.recomputed = 0;
    const spec::Recompute other = layout_of(made).recompute;
    if (other == recompute_) return;
    policy("recompute " + to_text(other), [&](PriceRequest& r) { r = made; });
  }

  void timetable(const Timetable& t) {
    policy(timetable_name(t),
           [&](PriceRequest& r) { r.schedule = t.schedule, r.chunks = t.chunks; });
  }

  template <class Set>
  void policy(std::string change, const Set& set) {
    PriceRequest request = chosen_;
    set(request);
    const std::int64_t m = request.microbatches();
    if (!lattice_.fits(Sharding{request.zero, request.shard_group()}, m) ||
        !lattice_.fits(Timetable{request.schedule, request.chunks}, request.pp, m))
      return;
    if (request.recomputed > 0 && !question_.given.drop && !remake_least(request))
      request.drop = model::kWholeBlock, request.recomputed = 0;
    const Finalist timed =
        simulate({request, cost::price(request)}, given_stages(question_, request));
    Alternative answer{.change = std::move(change)};
    if (timed.priced.price.fits)
      answer.found = timed;
    else
      answer.least_bytes = cost::device_bytes(timed.priced.price.memory);
    found_.push_back(std::move(answer));
  }

  const Question& question_;
  const Lattice lattice_;
  const PriceRequest& chosen_;
  const spec::Recompute recompute_;  // of the chosen
  std::vector<Alternative> found_;
};

}  // namespace

std::vector<Alternative> neighbours(const Question& question, const Finalist& chosen) {
  return Neighbours(question, chosen).take();
}

void change_cluster(cluster::Cluster& cluster, const Change& change) {
  switch (change.resource) {
    case Resource::kMemory:
      cluster.device.memory.value *= change.factor;
      break;
    case Resource::kNetwork:
      if (cluster.tiers.size() > 1) cluster.tiers.back().bytes_per_s.value *= change.factor;
      break;
    case Resource::kScaleUp:
      cluster.tiers.front().bytes_per_s.value *= change.factor;
      break;
    case Resource::kFlops:
      for (cluster::Figure* peak : {&cluster.device.peak_bf16, &cluster.device.peak_fp8,
                                    &cluster.device.peak_f16, &cluster.device.peak_f32})
        peak->value *= change.factor;
      break;
    case Resource::kBatch:
      break;
  }
}

Alternative what_if(const Question& question, const Change& change, const Finalist& chosen) {
  constexpr std::array kNames = {"memory", "network", "scale-up", "flops", "batch"};
  cluster::Cluster cluster = *question.cluster;
  change_cluster(cluster, change);
  Question asked = question;
  asked.cluster = &cluster;
  if (change.resource == Resource::kBatch)
    asked.global_batch = std::llround(static_cast<double>(question.global_batch) * change.factor);
  Alternative answer = best_of(
      asked, strf("%s x%.4g", kNames[static_cast<std::size_t>(change.resource)], change.factor));
  // What was chosen is still there to choose.
  PriceRequest same = chosen.priced.request;
  same.cluster = &cluster;
  same.global_batch = asked.global_batch;
  if (same.cuts_batch() &&
      Lattice(asked).fits(Timetable{same.schedule, same.chunks}, same.pp, same.microbatches())) {
    const Finalist kept = simulate({same, cost::price(same)}, stages_of(chosen));
    if (kept.priced.price.fits && (!answer.found || kept.seconds < answer.found->seconds))
      answer.found = kept;
  }
  if (answer.found) answer.found->priced.request.cluster = question.cluster;
  return answer;
}

Alternative rule_of_thumb(const Question& question) {
  Question asked = question;
  asked.cp = 1;
  asked.most_zero = 1;
  const std::int64_t node = question.cluster->tiers.front().size;
  Alternative last{.change = "rule of thumb"};
  for (std::int64_t tp = 1; tp <= node; tp *= 2) {
    asked.tp = static_cast<int>(tp), asked.pp = 1;
    last = best_of(asked, "rule of thumb");
    if (last.found) break;
  }
  for (int pp = 2; !last.found && pp <= question.shape->layers; ++pp) {
    if (question.devices % (pp * node) != 0) continue;
    asked.tp = static_cast<int>(node), asked.pp = pp;
    last = best_of(asked, "rule of thumb");
  }
  return last;
}

Alternative sharding_rule(const Question& question) {
  Question asked = question;
  asked.cp = asked.pp = 1;
  Alternative answer{.change = "zero 3"};
  const std::int64_t node = question.cluster->tiers.front().size;
  for (std::int64_t tp = 1; tp <= node && !answer.found; tp *= 2) {
    asked.tp = static_cast<int>(tp);
    answer = best_of(asked, "zero 3");
  }
  return answer;
}

std::optional<spec::Recompute> fitting_recompute(const Finalist& finalist) {
  for (const model::Drop& rest : {model::kKeepAll, model::kSelective}) {
    PriceRequest r = finalist.priced.request;
    r.drop = rest;
    if (!remake_least(r)) continue;
    const Stages stages = evenly_recomputed(r, stages_of(finalist).layers);
    if (simulate({r, cost::price(r)}, stages).priced.price.fits) return recompute_of(r, stages);
  }
  return std::nullopt;
}

std::vector<Flip> flips(std::span<const Finalist> finalists) {
  std::vector<Flip> found;
  if (finalists.empty()) return found;
  const cluster::DeviceRates& rates = *finalists.front().priced.request.rates;
  for (std::size_t i = 0; i < cluster::kNumTerms; ++i)
    for (const double sign : {-1.0, 1.0}) {
      const double change = sign * rates.terms[i].band;
      cluster::DeviceRates moved = rates;
      moved.terms[i].value *= 1 + change;
      std::size_t winner = 0;
      double least = 0;
      for (std::size_t j = 0; change != 0 && j < finalists.size(); ++j) {
        PriceRequest request = finalists[j].priced.request;
        request.rates = &moved;
        const double seconds = simulate(Priced{request, cost::price(request)}).seconds;
        if (j == 0 || seconds < least) winner = j, least = seconds;
      }
      if (winner > 0) found.push_back({static_cast<cluster::Term>(i), change, winner});
    }
  return found;
}

std::string difference(const StepTime& from, const StepTime& to) {
  const double least = 0.005 * from.total();
  std::vector<std::pair<double, const char*>> terms = {
      {to.forward + to.backward + to.head - from.forward - from.backward - from.head, "compute"},
      {to.recompute - from.recompute, "recompute"},
      {to.tensor - from.tensor, "tp"},
      {to.context - from.context, "cp"},
      {to.expert - from.expert, "ep"},
      {to.pipe - from.pipe, "P2P"},
      {to.data - from.data, "dp"},
      {to.bubble - from.bubble, "bubble"},
      {to.optimizer - from.optimizer, "optimizer"}};
  std::ranges::sort(
      terms, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text;
  for (std::size_t i = 0; i < 2; ++i) {
    if (std::abs(terms[i].first) < least) break;
    text += join_parts(text.empty() ? "" : ", ", terms[i].second, terms[i].first > 0 ? " +" : " -",
                       to_text(Seconds{std::abs(terms[i].first)}));
  }
  return text;
}

}  // namespace lockstep::planner
