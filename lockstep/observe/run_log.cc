#include "lockstep/observe/run_log.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::observe {
namespace {

Error bad_log(const std::string& name, std::string message, std::string help) {
  return {Code::kBadRunTable, join_parts("`", name, "` ", message), std::move(help)};
}

// The number behind `key`; commas may part its thousands.
std::optional<double> behind(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + key.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::string digits(line.substr(0, line.find_first_not_of("0123456789.,")));
  std::erase(digits, ',');
  return number_in<double>(digits);
}

struct Step {
  double seconds = 0, tokens_per_s = 0, flop_per_s = 0, batch = 0;
};

class LogReader {
 public:
  explicit LogReader(const std::string& name) : name_(name) {}

  Result<RunLog> read(std::string_view text) {
    const bool is_metrics = text.starts_with("{\"event\"");
    std::vector<std::string_view> lines = split(text, '\n');
    lines.pop_back();  // the rest of one that was cut short, where there is any
    for (const std::string_view line : lines)
      if (is_metrics)
        LS_TRY(take_metrics(line));
      else
        take_printed(line);
    return summary();
  }

 private:
  void take_printed(std::string_view line) {
    const auto hold = [&](std::optional<double> amount, double unit) {
      log_.memory_bytes = std::max(log_.memory_bytes, amount.value_or(0) * unit);
    };
    if (const auto ms = behind(line, "elapsed time per iteration (ms):"))
      steps_.push_back({*ms / 1000, 0,
                        1e12 * behind(line, "throughput per GPU (TFLOP/s/GPU):").value_or(0),
                        behind(line, "global batch size:").value_or(0)});
    hold(behind(line, "| max reserved:"), kGib / 1024);
    const auto tps = behind(line, "tps:"), tflops = behind(line, "tflops:");
    if (!tps || !tflops) return;  // a validation has no FLOPs
    steps_.push_back({0, *tps, 1e12 * *tflops, 0});
    hold(behind(line, "memory:"), kGib);
  }

  // docs/metrics.md.
  Result<void> take_metrics(std::string_view line) {
    const Result<Json> json = Json::parse(line);
    const Json* const event = json.ok() && json->is_object() ? json->find("event") : nullptr;
    if (event == nullptr || !event->is_text())
      return bad_log(name_, join_parts("has a line without `event`: ", line), "docs/metrics.md");
    const std::string& what = event->as_text();
    if (what == "start" || what == "resume") return take_head(*json);
    if (what != "step") return {};
    const auto number = [&](const char* key) {
      const Json* const value = json->find(key);
      return value != nullptr && value->is_number() ? value->as_real() : 0;
    };
    const double batch = number("samples") - std::exchange(samples_, number("samples"));
    steps_.push_back({number("seconds"), 0, 0, batch});
    log_.reading = cost::Reading::kAllocated;
    log_.memory_bytes = std::max(log_.memory_bytes, number("peak_bytes"));
    return {};
  }

  Result<void> take_head(const Json& head) {
    steps_.clear(), log_ = {};
    for (const char* key :
         {"model", "layout", "microbatch", "seq", "global_batch", "dtype", "parameters"}) {
      const Json* const value = head.find(key);
      if (value == nullptr)
        return bad_log(name_, join_parts("does not say `", key, "` where the run starts"),
                       "an earlier version wrote it: give a CSV with its layout and step_s");
      log_.cells[key] = value->is_text() ? value->as_text() : value->dump();
    }
    log_.cells["layout"] += " microbatch=" + log_.cells["microbatch"];
    log_.cells.erase("microbatch");
    if (const Json* const cluster = head.find("cluster"); cluster != nullptr && cluster->is_text())
      log_.cells["cluster"] = cluster->as_text();
    return {};
  }

  double median(double Step::* of) {
    const auto middle = steps_.begin() + std::ssize(steps_) / 2;
    std::ranges::nth_element(steps_, middle, {}, of);
    return (*middle).*of;
  }

  Result<RunLog> summary() {
    if (steps_.empty())
      return bad_log(name_, "has no line of a step",
                     "known are Megatron-LM's `elapsed time per iteration (ms):`, torchtitan's "
                     "`tps: ... tflops:` and metrics.jsonl");
    const double batch = steps_.back().batch;
    steps_.erase(steps_.begin(),
                 steps_.begin() + std::min<std::ptrdiff_t>(std::ssize(steps_), kWarmUp));
    std::erase_if(steps_, [&](const Step& step) { return step.batch != batch; });
    if (steps_.size() < kLeastLines)
      return bad_log(name_,
                     join_parts("has ", steps_.size(),
                                " lines of steps of one batch after the first ", kWarmUp),
                     join_parts("at least ", kLeastLines, ": log more steps"));
    if (batch > 0) log_.cells["global_batch"] = strf("%.0f", batch);
    log_.step_s = median(&Step::seconds);
    log_.tokens_per_s = median(&Step::tokens_per_s);
    log_.flop_per_s = median(&Step::flop_per_s);
    return std::move(log_);
  }

  const std::string& name_;
  RunLog log_;
  std::vector<Step> steps_;
  double samples_ = 0;
};

}  // namespace

Result<RunLog> read_run_log(std::string_view text, const std::string& name) {
  return LogReader(name).read(text);
}

}  // namespace lockstep::observe
