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
  Choosing(const Args& args, PlanRequest& request) : args_(args), request_(request) {
    const planner::Question& q = request.question;
    const double flops = 3 * cost::forward_flops(request.shape, static_cast<double>(q.seq)).matmul;
    device_days_ = args.real("tokens") * flops / peak(request.cluster.device, q.precision) / 86400;
  }

  std::optional<Error> run() {
    const std::vector<std::int64_t> counts = device_counts(request_.cluster);
    if (args_.has("target-days"))
      fewest(counts);
    else
      fastest(counts);
    std::ranges::sort(request_.tried, {}, &DeviceTrial::devices);
    if (!chosen_) {
      if (request_.tried.empty()) trial(counts.back());
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

  double least_days(std::int64_t devices) const {
    return device_days_ / static_cast<double>(devices);
  }

  bool meets(const DeviceTrial& trial) const {
    return trial.days && (!args_.has("target-days") || *trial.days <= args_.real("target-days")) &&
           (!args_.has("max-cost") || *trial.money <= args_.real("max-cost"));
  }

  const DeviceTrial& trial(std::int64_t devices) {
    const cluster::Cluster cluster = sized(devices);
    planner::Question question = request_.question;
    question.cluster = &cluster;
    question.devices = devices;
    DeviceTrial made{.devices = devices};
    if (const planner::Sought found = planner::seek(question); !found.best.empty()) {
      const RunCost cost = run_cost(args_, row_of(args_, found.best.front()));
      made.days = cost.days;
      made.money = cost.money;
    }
    return request_.tried.emplace_back(made);
  }

  void fewest(const std::vector<std::int64_t>& counts) {
    for (const std::int64_t devices : counts)
      if (least_days(devices) <= args_.real("target-days"))
        if (const DeviceTrial& one = trial(devices); meets(one))
          return chosen_.emplace(one), void();
  }

  void fastest(const std::vector<std::int64_t>& counts) {
    for (const std::int64_t devices : counts | std::views::reverse) {
      if (chosen_ && least_days(devices) >= *chosen_->days) return;
      const DeviceTrial& one = trial(devices);
      if (meets(one) && (!chosen_ || *one.days < *chosen_->days)) chosen_ = one;
    }
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
    const bool few = args_.has("target-days");
    std::string text = join_parts(taken(*chosen_), ": of the numbers tried the ",
                                  few ? "fewest" : "fastest", " that train ", target());
    const auto at = std::ranges::find(request_.tried, chosen_->devices, &DeviceTrial::devices);
    if (few && at != request_.tried.begin()) text += "; " + taken(*std::prev(at));
    if (!few && at + 1 < request_.tried.end()) text += "; " + taken(*std::next(at));
    request_.notes.push_back(std::move(text));
  }

  Error missed() const {
    const DeviceTrial* best = &request_.tried.back();
    for (const DeviceTrial& one : request_.tried)
      if (one.days && (!best->days || (args_.has("target-days") ? *one.days < *best->days
                                                                : *one.money < *best->money)))
        best = &one;
    return {Code::kTargetMissed,
            join_parts(request_.model.name, " on at most ",
                       counted(request_.cluster.count, "device"), " does not train ", target()),
            join_parts("the nearest: ", taken(*best),
                       args_.has("target-days") ? "; or name a larger --cluster" : "")};
  }

  const Args& args_;
  PlanRequest& request_;
  double device_days_ = 0;  // at the devices' peak
  std::optional<DeviceTrial> chosen_;
};

}  // namespace

std::vector<std::int64_t> device_counts(const cluster::Cluster& cluster) {
  const std::int64_t node = cluster.tiers.front().size;
  std::vector<std::int64_t> counts = {cluster.count};
  for (std::int64_t power = 1; power <= cluster.count; power *= 2) {
    if (power < node) counts.push_back(power);
    for (const std::int64_t odd : {1, 3, 5})
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
