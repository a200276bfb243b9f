#include "lockstep/train/run_metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/train/predictions.h"

namespace lockstep::train {
namespace {

// Over all blocks: most tokens of an expert over the mean of its block, and experts without any.
struct ExpertLoad {
  double max_over_mean = 0;
  std::int64_t without_tokens = 0;
};
ExpertLoad expert_load(std::span<const std::int64_t> tokens, std::int64_t experts) {
  ExpertLoad load;
  for (std::size_t first = 0; first < tokens.size(); first += experts) {
    const auto block = tokens.subspan(first, experts);
    const auto all = std::accumulate(block.begin(), block.end(), std::int64_t{0});
    const double mean = static_cast<double>(all) / static_cast<double>(experts);
    load.max_over_mean =
        std::max(load.max_over_mean, static_cast<double>(std::ranges::max(block)) / mean);
    load.without_tokens += std::ranges::count(block, 0);
  }
  return load;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void move_aside(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  int number = 1;
  const auto aside = [&] { return path.parent_path() / join_parts("metrics-", number, ".jsonl"); };
  while (std::filesystem::exists(aside())) ++number;
  std::error_code failed;
  std::filesystem::rename(path, aside(), failed);
  if (failed)
    throw IoError({Code::kBadMetrics,
                   join_parts("`", path.string(), "` cannot be renamed: ", failed.message())});
}

template <class File>
File opened(Result<File> file) {
  if (!file.ok()) throw IoError(file.error());
  return *std::move(file);
}

}  // namespace

std::string metrics_path(const std::string& directory) {
  return (std::filesystem::path(directory) / "metrics.jsonl").string();
}

Json RunMetrics::head(const char* event, std::int64_t steps) const {
  Json line = metrics::event_line(event, steps);
  line.set("schema", "lockstep.metrics/1")
      .set("time", wall_time())
      .set("lockstep", options_.version)
      .set("model", job_.spec.model.name)
      .set("parameters", count(job_.model).total)
      .set("layout", to_text(job_.spec.layout))
      .set("seq", job_.spec.batch.seq)
      .set("global_batch", job_.spec.batch.global_batch)
      .set("microbatch", job_.spec.batch.microbatch)
      .set("ranks", job_.mesh.world())
      .set("dtype", std::string(to_text(job_.spec.train.dtype)))
      .set("steps", job_.spec.train.steps);
  const Prediction predicted = predict(job_, Rank{0});
  line.set("predicted_peak_bytes", predicted.peak_bytes)
      .set("predicted_sent_bytes", predicted.sent().value);
  if (job_.spec.cluster) line.set("cluster", job_.spec.cluster->name);
  if (file_->dropped() > 0) line.set("dropped_lines", file_->dropped());
  return line;
}

void RunMetrics::begins(const Progress& done, bool continues) {
  const std::string path = metrics_path(options_.directory);
  const bool resumes = options_.resumes && continues;
  if (!resumes && options_.may_set_aside) move_aside(path);
  file_ = opened(resumes ? metrics::MetricsFile::resume(path, done.step)
                         : metrics::MetricsFile::create(path));
  events_ = opened(metrics::EventFile::create(options_.directory, done.step + 1, wall_time()));
  add(head(resumes ? "resume" : "start", done.step));
}

void RunMetrics::check(const Result<void>& written) {
  if (!written.ok() && options_.on_trouble) options_.on_trouble(written.error(), lost_);
}

void RunMetrics::add(const Json& line) {
  const Result<void> written = file_->add(line);
  if (!written.ok()) ++lost_;
  check(written);
}

void RunMetrics::add(std::int64_t step, std::span<const metrics::Scalar> scalars) {
  check(events_->add(step, wall_time(), scalars));
}

void RunMetrics::step(std::int64_t step, const StepReport& report,
                      std::optional<std::uint64_t> /*digest*/) {
  const spec::StepBatch batch = job_.batch(step);
  const double lr = job_.adamw(step).others.lr, seconds = report.time.value;
  const double speed = seconds > 0 ? static_cast<double>(report.tokens) / seconds : 0.0;
  Json line = metrics::event_line(report.updated ? "step" : "skip", step + 1);
  line.set("samples", batch.first + batch.sequences)
      .set("tokens", report.tokens)
      .set("loss", report.loss)
      .set("grad_norm", report.grad_norm)
      .set("lr", lr)
      .set("seconds", seconds)
      .set("tokens_per_second", speed)
      .set("peak_bytes", report.peak_bytes)
      .set("sent_bytes", report.sent.value);
  std::vector<metrics::Scalar> scalars = {
      {"train/loss", report.loss},
      {"train/grad_norm", report.grad_norm},
      {"train/lr", lr},
      {"speed/tokens_per_second", speed},
      {"speed/seconds", seconds},
      {"memory/peak_bytes", static_cast<double>(report.peak_bytes)},
      {"traffic/sent_bytes", static_cast<double>(report.sent.value)}};
  if (report.noise_scale) {
    line.set("noise_scale", *report.noise_scale);
    scalars.push_back({"train/noise_scale", *report.noise_scale});
  }
  if (job_.program.step.checks) line.set("check_seconds", report.checks.value);
  add_routers(report, line, scalars);
  add(line);
  add(step + 1, scalars);
}

void RunMetrics::add_routers(const StepReport& report, Json& line,
                             std::vector<metrics::Scalar>& scalars) const {
  if (report.expert_tokens.empty()) return;
  const auto tell = [&](const char* name, auto value) {
    line.set(name, value);
    scalars.push_back({join_parts("experts/", name), static_cast<double>(value)});
  };
  if (job_.spec.train.moe_aux_loss_coeff > 0) tell("aux_loss", report.aux_loss);
  if (job_.spec.train.moe_z_loss_coeff > 0) tell("z_loss", report.z_loss);
  const ExpertLoad load = expert_load(report.expert_tokens, job_.model.config.moe.experts);
  tell("expert_max_over_mean", load.max_over_mean);
  tell("experts_without_tokens", load.without_tokens);
}

// Lines of steps that are taken anew are dropped.
void RunMetrics::rolled_back(const Error& why, const Loaded& to) {
  file_.reset();
  file_ = opened(metrics::MetricsFile::resume(metrics_path(options_.directory), to.progress.step));
  event("roll_back", to.progress.step, Json::object({{"why", why.message}}));
}

void RunMetrics::evaluation(std::int64_t step, const EvalReport& report) {
  const double perplexity = std::exp(report.loss);
  Json line = metrics::event_line("eval", step + 1);
  line.set("samples", job_.spec.train.eval_samples)
      .set("tokens", report.tokens)
      .set("loss", report.loss)
      .set("perplexity", perplexity)
      .set("seconds", report.time.value);
  add(line);
  const metrics::Scalar scalars[] = {{"eval/loss", report.loss}, {"eval/perplexity", perplexity}};
  add(step + 1, scalars);
}

void RunMetrics::event(const std::string& name, std::int64_t steps, const Json& more) {
  Json line = metrics::event_line(name, steps);
  for (const Json::Member& member : more.members()) line.set(member.key, member.value);
  add(line);
}

void RunMetrics::saves(const Progress& done, Seconds paused) {
  event("save", done.step,
        Json::object({{"checkpoint", checkpoint::folder_name(done.step)},
                      {"paused_seconds", paused.value}}));
}

void RunMetrics::saved(const SaveEnding& ending) {
  if (!ending.path.ok()) event("save_failed", ending.step);
}

void RunMetrics::ended(Ending ending, const Progress& done) {
  event(ending == Ending::kFinished  ? "end"
        : ending == Ending::kStopped ? "stop"
        : ending == Ending::kCorrupt ? "corrupt"
                                     : "diverge",
        done.step);
}

}  // namespace lockstep::train
