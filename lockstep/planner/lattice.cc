#include "lockstep/planner/lattice.h"

#include <algorithm>
#include <array>

#include "lockstep/base/check.h"
#include "lockstep/base/divides.h"
#include "lockstep/pipeline/layer_split.h"

namespace lockstep::planner {
namespace {

using cost::Keep;
using cost::Placement;

constexpr double kLeastContext =
    512;  // tokens of a sequence on one rank; shorter ones only wait for each other
constexpr double kLargestMicrobatch = 64;
constexpr double kMostChunks = 16;

bool is_free(double given, double value) { return given == 0 || given == value; }

double widest_tensor(const cluster::Cluster& cluster) {
  const bool torus = cluster.tiers.front().kind != cluster::TierKind::kSwitch;
  const std::size_t tier = torus && cluster.tiers.size() > 1 ? 1 : 0;
  return static_cast<double>(cluster.tiers[tier].size);
}

// Ascending.
std::vector<double> divisors(std::int64_t n) {
  std::vector<double> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(static_cast<double>(d));
    const std::int64_t other = n / d;
    if (other != d) high.push_back(static_cast<double>(other));
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

}  // namespace

std::vector<const pipeline::CatalogRow*> planned_schedules() {
  std::vector<const pipeline::CatalogRow*> rows;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    if (row.is_planned) rows.push_back(&row);
  return rows;
}

Lattice::Lattice(const Question& question) : question_(question) {
  LS_CHECK(question.shape != nullptr && question.cluster != nullptr && question.rates != nullptr &&
               question.devices > 0,
           "a question names its model and its cluster");
  batch_divisors_ = divisors(question.global_batch);
  std::erase_if(batch_divisors_, [](double b) { return b > kLargestMicrobatch; });
  if (question.given.microbatch > 0) batch_divisors_ = {question.given.microbatch};
  const double widest = widest_tensor(*question.cluster);
  const auto seq = static_cast<double>(question.seq);
  degrees_ = divisors(question.devices);
  if (const auto& core = question.given.core) {
    for (const cost::CpMethod context : contexts(core->tp, core->cp))
      cores_.push_back({core->tp, core->cp, core->ep, core->etp, context});
    return;
  }
  for (const double tp : degrees_) {
    if (!is_free(question.tp, tp) || (question.tp == 0 && tp > widest)) continue;
    if (!cuts_tensors(tp) || !divides(tp, seq)) continue;
    for (const double cp : degrees_) {
      if (!divides(tp * cp, static_cast<double>(question.devices))) continue;
      if (!is_free(question.cp, cp)) continue;
      if (cp > 1 && (!divides(2 * cp * tp, seq) || seq / cp < kLeastContext)) continue;
      add_cores(tp, cp);
    }
  }
}

bool Lattice::cuts_tensors(double tp) const {
  const cost::ModelShape& s = *question_.shape;
  const bool has_mlp = !s.has_experts() || s.dense_layers > 0 || s.moe_every > 1;
  return divides(tp, s.heads) && divides(tp, s.kv_heads) && (!has_mlp || divides(tp, s.ffn)) &&
         divides(tp, s.shared_ffn);
}

void Lattice::add_cores(double tp, double cp) {
  for (const cost::CpMethod context : contexts(tp, cp)) add_cores({tp, cp, 1, 1, context});
}

void Lattice::add_cores(const Core& dense) {
  const cost::ModelShape& s = *question_.shape;
  if (!s.has_experts()) return cores_.push_back(dense);
  for (const double ep : divisors(static_cast<std::int64_t>(s.experts))) {
    if (!is_free(question_.ep, ep)) continue;
    Core core = dense;
    core.ep = ep;
    cores_.push_back(core);
    core.etp = core.tp;
    if (core.tp > 1 && divides(core.tp, s.expert_ffn)) cores_.push_back(core);
  }
}

std::span<const cost::CpMethod> Lattice::contexts(double tp, double cp) const {
  if (question_.given.context) return {&*question_.given.context, 1};
  static_assert(cost::kCpMethods.back() == cost::CpMethod::kUlysses);
  const std::span<const cost::CpMethod> all = cost::kCpMethods;
  if (cp <= 1) return all.first(1);
  return divides(tp * cp, question_.shape->heads) ? all : all.first(all.size() - 1);
}

std::span<const Keep> Lattice::keeps() const {
  if (question_.given.kept) return {&question_.given.kept->others, 1};
  static constexpr std::array kKeeps = {Keep::kAll, Keep::kCheap, Keep::kInput};
  return kKeeps;
}

double Lattice::data(const Core& core, double pp) const {
  return static_cast<double>(question_.devices) / (core.tp * core.cp * pp);
}

std::vector<double> Lattice::pipelines(const Core& core) const {
  const auto left = static_cast<double>(question_.devices) / (core.tp * core.cp);
  std::vector<double> found;
  for (double pp = 1; pp <= std::min(left, question_.shape->layers); ++pp) {
    if (!divides(pp, left) || !is_free(question_.pp, pp)) continue;
    if (!divides(left / pp, static_cast<double>(question_.global_batch))) continue;
    if (divides(core.ep * core.etp, core.tp * core.cp * left / pp)) found.push_back(pp);
  }
  return found;
}

std::vector<Sharding> Lattice::shardings(const Core& core, double pp) const {
  if (question_.given.sharding) return {*question_.given.sharding};
  const double dp = data(core, pp), all = dp * core.cp;
  if (all <= 1) return {{1, 1}};
  std::vector<double> groups = {all};
  for (const cluster::Tier& tier : question_.cluster->tiers)
    for (const double stride : {core.tp, core.tp * pp}) {
      const double most = largest_divisor(dp, static_cast<double>(tier.size) / (stride * core.cp));
      const double group = most * core.cp;
      if (group > 1 && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
  std::vector<Sharding> found = {{0, all}};
  for (const double group : groups) found.push_back({1, group});
  found.push_back({2, all});
  for (const double group : groups) found.push_back({3, group});
  std::erase_if(found, [&](const Sharding& one) { return one.zero > question_.most_zero; });
  return found;
}

// Of dp, at most `limit`, but at least 1. dp divides the devices, so its divisors are among theirs.
double Lattice::largest_divisor(double dp, double limit) const {
  for (auto at = degrees_.rbegin(); at != degrees_.rend(); ++at)
    if (*at <= limit && divides(*at, dp)) return *at;
  return 1;
}

// With chunks the stages must be even but for a layer at either end, unless the core is given.
std::vector<Timetable> Lattice::timetables(double pp) const {
  if (pp <= 1) return {Timetable{}};
  const double given = question_.given.chunks;
  const bool is_given = question_.schedules.size() == 1 && given > 0;
  const auto even = [&, layers = static_cast<int>(question_.shape->layers)](double chunks) {
    const int stages = static_cast<int>(pp * chunks);
    return stages <= layers &&
           (question_.given.core || pipeline::short_stages(layers, stages) <= 2);
  };
  std::vector<Timetable> found;
  for (const pipeline::CatalogRow* row :
       question_.schedules.empty() ? planned_schedules() : question_.schedules) {
    const double least = row->chunks > 0 ? row->chunks : 2;
    const double most = row->chunks > 0 ? row->chunks : std::max(kMostChunks, given);
    for (double chunks = least; chunks <= most; ++chunks)
      if (is_free(given, chunks) && (is_given || chunks == 1 || even(chunks)))
        found.push_back({row, chunks});
  }
  return found;
}

bool Lattice::fits(const Sharding& sharding, double m) const {
  return sharding.zero != 2 || m == 1 || question_.given.core || question_.given.sharding;
}

bool Lattice::fits(const Timetable& timetable, double pp, double m) const {
  const bool is_given = question_.schedules.size() == 1 && question_.given.chunks > 0 &&
                        question_.given.microbatch > 0;
  return pp <= 1 || is_given || timetable.schedule->holds({.p = pp, .v = timetable.chunks, .m = m});
}

std::vector<double> Lattice::microbatches(double dp) const {
  const double share = static_cast<double>(question_.global_batch) / dp;
  std::vector<double> found;
  for (const double b : batch_divisors_)
    if (divides(b, share)) found.push_back(b);
  return found;
}

std::span<const Placement> Lattice::placements(const Core& core, double pp) const {
  if (question_.given.placement) return {&*question_.given.placement, 1};
  static constexpr std::array kBoth = {Placement::kPipeInside, Placement::kDataInside};
  const bool several = pp > 1 && data(core, pp) > 1;
  return std::span<const Placement>(kBoth).first(several ? 2 : 1);
}

cost::PriceRequest Lattice::blank(const Question& question) {
  cost::PriceRequest request;
  request.shape = question.shape;
  request.cluster = question.cluster;
  request.rates = question.rates;
  request.seq = static_cast<double>(question.seq);
  request.global_batch = static_cast<double>(question.global_batch);
  request.precision = question.precision;
  request.headroom = question.headroom;
  request.sp = question.given.sp;
  request.stack.reduce_each_microbatch = true;  // as layouts say of ZeRO-2
  return request;
}

cost::PriceRequest Lattice::of(const Core& core) const {
  cost::PriceRequest request = blank(question_);
  request.tp = core.tp, request.cp = core.cp, request.ep = core.ep, request.etp = core.etp;
  request.context = core.context;
  return request;
}

std::int64_t Lattice::size() const {
  std::int64_t points = 0;
  for (const Core& core : cores_)
    for (const double pp : pipelines(core)) {
      const double dp = data(core, pp);
      const std::vector<Sharding> all = shardings(core, pp);
      const std::vector<Timetable> tables = timetables(pp);
      const std::size_t times = keeps().size() * placements(core, pp).size();
      for (const double b : microbatches(dp)) {
        const double m = static_cast<double>(question_.global_batch) / (dp * b);
        const auto shard_count =
            std::ranges::count_if(all, [&](const Sharding& s) { return fits(s, m); });
        const auto table_count =
            std::ranges::count_if(tables, [&](const Timetable& t) { return fits(t, pp, m); });
        points += shard_count * table_count * static_cast<std::int64_t>(times);
      }
    }
  return points;
}

}  // namespace lockstep::planner
