#include "cli/plan/targets.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <ranges>
#include <utility>

#include "cli/plan/answer.h"
#include "cli/plan/report.h"
#include "lockstep/base/check.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/planner/seek.h"

namespace lockstep::cli {
namespace {

// FLOP/s that no device surpasses; infinite where nobody has printed them.
double peak(const cluster::DeviceType& device, cost::Precision precision) {
  double most = std::max(device.peak_bf16.value, device.peak_f16.value);
  if (precision == cost::Precision::kFp8) most = std::max(most, device.peak_fp8.value);
  return most > 0 && !device.is_host ? most : std::numeric_limits<double>::infinity();
}

class Choosing {
 public:
  Choosing(const Args& args, PlanRequest& request)
      : args_(args),
        request_(request),
        is_fewest_(args.has("target-days")),
        counts_(device_counts(request.cluster)) {
    const planner::Question& q = request.question;
    const double tokens = args_.real("tokens");
    const double flops = 3 * cost::forward_flops(request.shape, static_cast<double>(q.seq)).matmul;
    device_days_ = tokens * flops / peak(request.cluster.device, q.precision) / 86400;
    steps_ = tokens / (static_cast<double>(q.seq) * static_cast<double>(q.global_batch));
  }

  std::optional<Error> run() {
    if (is_fewest_)
      fewest();
    else
      fastest();
    if (!chosen_) {
      if (request_.tried.empty()) trial(counts_.back());
      return missed();
    }
    say();
    request_.cluster = sized(chosen_->devices);
    request_.cluster_text = request_.cluster.name;
    request_.question.devices = chosen_->devices;
    return std::nullopt;
  }

 private:
  cluster::Cluster sized(std::int64_t devices) const {
    return cluster::resized(request_.cluster, devices).value();
  }

  planner::Question question_on(const cluster::Cluster& cluster) const {
    planner::Question question = request_.question;
    question.cluster = &cluster;
    question.devices = cluster.count;
    return question;
  }

  // Whether a run of so many days would do; without --target-days also whether it would be faster
  // than the one that is chosen.
  bool would_do(std::int64_t devices, double days) const {
    const double most = is_fewest_ ? args_.real("target-days")
                        : chosen_  ? *chosen_->days
                                   : std::numeric_limits<double>::infinity();
    const double hours = days * 24 * static_cast<double>(devices);
    return days <= most &&
           (!args_.has("max-cost") || hours * args_.real("price") <= args_.real("max-cost"));
  }

  // By bounds alone, the cheap one first.
  bool might_do(std::int64_t devices) const {
    if (!would_do(devices, device_days_ / static_cast<double>(devices))) return false;
    const cluster::Cluster cluster = sized(devices);
    return would_do(devices, steps_ * planner::least_seconds(question_on(cluster)) / 86400);
  }

  const DeviceTrial& trial(std::int64_t devices) {
    const auto known = std::ranges::find(request_.tried, devices, &DeviceTrial::devices);
    if (known != request_.tried.end()) return *known;
    const cluster::Cluster cluster = sized(devices);
    DeviceTrial made{.devices = devices};
    if (const auto found = planner::seek(question_on(cluster)); !found.best.empty()) {
      const RunCost cost = run_cost(args_, row_of(args_, found.best.front()));
      made.days = cost.days;
      made.money = cost.money;
    }
    const auto at = std::ranges::lower_bound(request_.tried, devices, {}, &DeviceTrial::devices);
    return *request_.tried.insert(at, made);
  }

  bool does(const DeviceTrial& trial) const {
    return trial.days && would_do(trial.devices, *trial.days);
  }

  void fewest() {
    for (const std::int64_t devices : counts_)
      if (might_do(devices) && does(trial(devices))) return chosen_.emplace(trial(devices)), void();
  }

  void fastest() {
    for (const std::int64_t devices : counts_ | std::views::reverse)
      if (might_do(devices) && does(trial(devices))) chosen_ = trial(devices);
  }

  std::string target() const {
    std::string text = join_parts(amount(args_.real("tokens")), " tokens");
    if (args_.has("target-days")) text += strf(" in %g days", args_.real("target-days"));
    if (args_.has("max-cost")) text += join_parts(" for at most ", amount(args_.real("max-cost")));
    return text;
  }

  static std::string taken(const DeviceTrial& trial) {
    if (!trial.days) return join_parts(counted(trial.devices, "device"), " hold no layout");
    return join_parts(counted(trial.devices, "device"), trial.devices == 1 ? " takes " : " take ",
                      strf(*trial.days < 1000 ? "%.3g" : "%.0f", *trial.days), " days",
                      trial.money ? join_parts(" and cost ", amount(*trial.money)) : "");
  }

  // With the nearest that will not do.
  void say() {
    std::string text = join_parts(taken(*chosen_), ": of the numbers looked at the ",
                                  is_fewest_ ? "fewest" : "fastest", " that train ", target());
    const auto at = std::ranges::find(counts_, chosen_->devices);
    if (is_fewest_ && at != counts_.begin()) text += "; " + taken(trial(*std::prev(at)));
    if (!is_fewest_ && at + 1 < counts_.end()) text += "; " + taken(trial(*std::next(at)));
    request_.notes.push_back(std::move(text));
  }

  Error missed() const {
    const DeviceTrial* best = &request_.tried.back();
    for (const DeviceTrial& one : request_.tried)
      if (one.days &&
          (!best->days || (is_fewest_ ? *one.days < *best->days : *one.money < *best->money)))
        best = &one;
    return {Code::kTargetMissed,
            join_parts(request_.model.name, " on at most ",
                       counted(request_.cluster.count, "device"), " does not train ", target()),
            join_parts("the nearest: ", taken(*best),
                       is_fewest_ ? "; or name a larger --cluster" : "")};
  }

  const Args& args_;
  PlanRequest& request_;
  const bool is_fewest_;
  const std::vector<std::int64_t> counts_;
  double device_days_ = 0, steps_ = 0;  // days at the devices' peak
  std::optional<DeviceTrial> chosen_;
};

}  // namespace

std::vector<std::int64_t> device_counts(const cluster::Cluster& cluster) {
  const std::int64_t node = cluster.tiers.front().size;
  std::vector<std::int64_t> counts = {cluster.count};
  for (std::int64_t power = 1; power <= cluster.count; power *= 2) {
    if (power < node) counts.push_back(power);
    for (std::int64_t odd = 1; odd < 2 * kNodes; odd += 2)
      if (node * odd * power < cluster.count) counts.push_back(node * odd * power);
  }
  std::erase_if(counts, [&](std::int64_t count) { return !cluster::resized(cluster, count).ok(); });
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
  return counts;
}

std::optional<Error> choose_devices(const Args& args, PlanRequest& request) {
  if (!args.has("target-days") && !args.has("max-cost")) return std::nullopt;
  if (!cluster::resized(request.cluster, request.cluster.count).ok())
    return Error{Code::kConflict,
                 join_parts("--target-days and --max-cost try fewer devices, but `",
                            request.cluster.name, "` is a torus, whose axes have to be named"),
                 "name some tori: --compare " + request.cluster.name};
  return Choosing(args, request).run();
}

Json trials_json(const PlanRequest& request) {
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return Json::list(request.tried, [&](const DeviceTrial& one) {
    return Json::object(
        {{"devices", one.devices}, {"days", number(one.days)}, {"money", number(one.money)}});
  });
}

}  // namespace lockstep::cli
