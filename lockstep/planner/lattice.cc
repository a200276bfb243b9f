#include "lockstep/planner/lattice.h"

#include <algorithm>
#include <array>

#include "lockstep/base/check.h"
#include "lockstep/base/divides.h"
#include "lockstep/pipeline/layer_split.h"

namespace lockstep::planner {
namespace {

using cost::Placement;

constexpr int kLeastContext =
    512;  // tokens of a sequence on one rank; shorter ones only wait for each other
constexpr std::int64_t kLargestMicrobatch = 64;
constexpr int kMostChunks = 16;

bool is_free(int given, int value) { return given == 0 || given == value; }

std::int64_t widest_tensor(const cluster::Cluster& cluster) {
  const bool torus = cluster.tiers.front().kind != cluster::TierKind::kSwitch;
  const std::size_t tier = torus && cluster.tiers.size() > 1 ? 1 : 0;
  return cluster.tiers[tier].size;
}

// Ascending.
template <class Whole>
std::vector<Whole> divisors(Whole n) {
  std::vector<Whole> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(static_cast<Whole>(d));
    const Whole other = n / low.back();
    if (other != low.back()) high.push_back(other);
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

Lattice::Lattice(const Question& question)
    : question_(question), devices_(static_cast<int>(question.devices)) {
  LS_CHECK(question.shape != nullptr && question.cluster != nullptr && question.rates != nullptr &&
               question.devices > 0 && question.devices <= cluster::kMaxDevices,
           "a question names its model and its cluster");
  batch_divisors_ = divisors(question.global_batch);
  std::erase_if(batch_divisors_, [](std::int64_t b) { return b > kLargestMicrobatch; });
  if (question.given.microbatch > 0) batch_divisors_ = {question.given.microbatch};
  drops_ = {model::kKeepAll, model::kSelective, model::kWholeBlock};
  if (question.framework) {
    drops_ = question.framework->rows;
    drops_.insert(drops_.begin(), model::kKeepAll);
    drops_.push_back(model::kWholeBlock);
  }
  if (question.given.drop) drops_ = {question.given.drop->rest()};
  const std::int64_t widest = widest_tensor(*question.cluster), seq = question.seq;
  degrees_ = divisors(devices_);
  if (const auto& core = question.given.core) {
    for (const model::CpMethod context : contexts(core->tp, core->cp))
      cores_.push_back({core->tp, core->cp, core->ep, core->etp, context});
    return;
  }
  for (const int tp : degrees_) {
    if (!is_free(question.tp, tp) || (question.tp == 0 && tp > widest)) continue;
    if (!cuts_tensors(tp) || seq % tp != 0) continue;
    for (const int cp : degrees_) {
      if (devices_ / tp % cp != 0 || !is_free(question.cp, cp)) continue;
      const std::int64_t parts = std::int64_t{2} * cp * tp;
      if (cp > 1 && (seq % parts != 0 || seq / cp < kLeastContext)) continue;
      add_cores(tp, cp);
    }
  }
}

bool Lattice::cuts_tensors(int tp) const {
  const cost::ModelShape& s = *question_.shape;
  const bool has_mlp = !s.has_experts() || s.dense_layers > 0 || s.moe_every > 1;
  const bool cuts_keys = divides(tp, s.kv_heads) || divides(s.kv_heads, tp);
  return divides(tp, s.heads) && cuts_keys && (!has_mlp || divides(tp, s.ffn)) &&
         divides(tp, s.shared_ffn);
}

void Lattice::add_cores(int tp, int cp) {
  for (const model::CpMethod context : contexts(tp, cp)) add_cores({tp, cp, 1, 1, context});
}

void Lattice::add_cores(const Core& dense) {
  const cost::ModelShape& s = *question_.shape;
  const auto add = [&](const Core& core) {
    if (question_.framework == nullptr || runs(*question_.framework, s, core))
      cores_.push_back(core);
  };
  if (!s.has_experts()) return add(dense);
  for (const int ep : divisors(static_cast<int>(s.experts))) {
    if (!is_free(question_.ep, ep)) continue;
    Core core = dense;
    core.ep = ep;
    if (core.tp == 1 || !question_.runnable || of(core).sp) add(core);
    core.etp = core.tp;
    if (core.tp > 1 && divides(core.tp, s.expert_ffn)) add(core);
  }
}

std::vector<model::CpMethod> Lattice::contexts(int tp, int cp) const {
  if (question_.given.context) return {*question_.given.context};
  if (cp <= 1) return {model::kCpMethods.front()};
  std::vector<model::CpMethod> found(model::kCpMethods.begin(), model::kCpMethods.end());
  const auto heads = static_cast<std::int64_t>(question_.shape->heads);
  const auto keys = static_cast<std::int64_t>(question_.shape->kv_heads);
  if (!model::deals_heads(heads, keys, tp, cp)) std::erase(found, model::CpMethod::kUlysses);
  if (question_.framework)
    std::erase_if(found, [&](model::CpMethod way) {
      return !runs(*question_.framework, *question_.shape, {tp, cp, 1, 1, way});
    });
  return found;
}

int Lattice::data(const Core& core, int pp) const { return devices_ / (core.tp * core.cp * pp); }

std::vector<int> Lattice::pipelines(const Core& core) const {
  const int left = devices_ / (core.tp * core.cp);
  const std::int64_t experts = std::int64_t{core.ep} * core.etp;
  std::vector<int> found;
  for (int pp = 1; pp <= std::min(left, question_.shape->layers); ++pp) {
    if (left % pp != 0 || !is_free(question_.pp, pp)) continue;
    if (question_.framework && !runs(*question_.framework, *question_.shape, core, pp)) continue;
    if (question_.global_batch % (left / pp) != 0) continue;
    if (devices_ / pp % experts == 0) found.push_back(pp);
  }
  return found;
}

std::vector<Sharding> Lattice::shardings(const Core& core, int pp) const {
  if (question_.given.sharding) return {*question_.given.sharding};
  const int dp = data(core, pp), all = dp * core.cp;
  if (all <= 1) return {{1, 1}};
  std::vector<int> groups = {all};
  for (const cluster::Tier& tier : question_.cluster->tiers)
    for (const int stride : {core.tp, core.tp * pp}) {
      const int group = largest_divisor(dp, tier.size / (stride * core.cp)) * core.cp;
      if (group > 1 && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
  std::vector<Sharding> found = {{0, all}};
  for (const int group : groups) found.push_back({1, group});
  found.push_back({2, all});
  for (const int group : groups) found.push_back({3, group});
  std::erase_if(found, [&](const Sharding& one) {
    return one.zero > question_.most_zero ||
           (question_.framework && !runs(*question_.framework, *question_.shape, one, all, pp));
  });
  return found;
}

// Of dp, at most `limit`, but at least 1. dp divides the devices, so its divisors are among theirs.
int Lattice::largest_divisor(int dp, std::int64_t limit) const {
  for (auto at = degrees_.rbegin(); at != degrees_.rend(); ++at)
    if (*at <= limit && dp % *at == 0) return *at;
  return 1;
}

// With chunks the stages must be even but for a layer at either end, unless the core is given or
// there is no other schedule.
std::vector<Timetable> Lattice::timetables(int pp) const {
  if (pp <= 1) return {Timetable{}};
  const int given = question_.given.chunks;
  const bool is_given = question_.schedules.size() == 1 && given > 0;
  const bool is_only = question_.framework && question_.framework->schedules.size() == 1;
  const auto even = [&, layers = question_.shape->layers](int chunks) {
    return chunks <= layers / pp &&
           (question_.given.core || is_only || pipeline::short_stages(layers, pp * chunks) <= 2);
  };
  std::vector<Timetable> found;
  for (const pipeline::CatalogRow* row :
       question_.schedules.empty() ? planned_schedules() : question_.schedules) {
    if (question_.framework && !runs(*question_.framework, row->name)) continue;
    const int least = row->chunks > 0 ? row->chunks : 2;
    const int most = row->chunks > 0 ? row->chunks : std::max(kMostChunks, given);
    for (int chunks = least; chunks <= most; ++chunks)
      if (is_free(given, chunks) && (is_given || chunks == 1 || even(chunks)))
        found.push_back({row, chunks});
  }
  return found;
}

bool Lattice::fits(const Sharding& sharding, std::int64_t m) const {
  return sharding.zero != 2 || m == 1 || question_.given.core || question_.given.sharding;
}

bool Lattice::fits(const Timetable& timetable, int pp, std::int64_t m) const {
  const bool is_given = question_.schedules.size() == 1 && question_.given.chunks > 0 &&
                        question_.given.microbatch > 0;
  return pp <= 1 || is_given ||
         timetable.schedule->holds(pipeline::terms_of(pp, timetable.chunks, m));
}

std::vector<std::int64_t> Lattice::microbatches(int dp) const {
  std::vector<std::int64_t> found;
  for (const std::int64_t b : batch_divisors_)
    if (question_.global_batch % (dp * b) == 0) found.push_back(b);
  return found;
}

std::span<const Placement> Lattice::placements(const Core& core, int pp) const {
  if (question_.given.placement) return {&*question_.given.placement, 1};
  static constexpr std::array kBoth = {Placement::kPipeInside, Placement::kDataInside};
  const bool several = pp > 1 && data(core, pp) > 1;
  const std::span<const Placement> both = kBoth;
  if (several && question_.framework && !question_.framework->pipe_inside) return both.last(1);
  return both.first(several ? 2 : 1);
}

cost::PriceRequest Lattice::blank(const Question& question) {
  cost::PriceRequest request;
  request.shape = question.shape;
  request.cluster = question.cluster;
  request.rates = question.rates;
  request.seq = static_cast<int>(question.seq);
  request.global_batch = question.global_batch;
  request.precision = question.precision;
  request.headroom = question.headroom;
  request.sp = question.given.sp;
  if (question.framework) request.stack = question.framework->stack(request.zero);
  request.stack.reduce_each_microbatch = true;  // as layouts say of ZeRO-2
  return request;
}

void set_sharding(const Question& question, const Sharding& sharding, cost::PriceRequest& request) {
  request.zero = sharding.zero;
  request.dp_shard = sharding.group;
  if (!question.framework) return;
  const bool is_each = request.stack.reduce_each_microbatch;
  request.stack = question.framework->stack(sharding.zero);
  request.stack.reduce_each_microbatch = is_each;
}

cost::PriceRequest Lattice::of(const Core& core) const {
  cost::PriceRequest request = blank(question_);
  request.tp = core.tp, request.cp = core.cp, request.ep = core.ep, request.etp = core.etp;
  request.context = core.context;
  if (question_.framework && core.tp > 1) request.sp = request.sp && question_.framework->sp;
  return request;
}

std::int64_t Lattice::size() const {
  std::int64_t points = 0;
  for (const Core& core : cores_)
    for (const int pp : pipelines(core)) {
      const int dp = data(core, pp);
      const std::vector<Sharding> all = shardings(core, pp);
      const std::vector<Timetable> tables = timetables(pp);
      const std::size_t times = drops_.size() * placements(core, pp).size();
      for (const std::int64_t b : microbatches(dp)) {
        const std::int64_t m = question_.global_batch / (dp * b);
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
