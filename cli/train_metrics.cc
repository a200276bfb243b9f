#include "cli/train_metrics.h"

#if LOCKSTEP_WITH_TORCH
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/help.h"
#include "cli/text_file.h"

namespace lockstep::cli {
namespace {

std::string metrics_path(const std::string& directory) {
  return (std::filesystem::path(directory) / "metrics.jsonl").string();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void demand(const Result<void>& done) {
  if (!done.ok()) throw IoError(done.error());
}

metrics::StepMetrics metrics_of(const train::Job& job, std::int64_t step,
                                const train::StepReport& report) {
  const plan::StepBatch batch = job.batch(step);
  return {.step = step + 1,
          .samples = batch.first + batch.sequences,
          .tokens = report.tokens,
          .loss = report.loss,
          .grad_norm = report.grad_norm,
          .lr = job.adamw(step).others.lr,
          .time = report.time,
          .peak_bytes = report.peak_bytes,
          .sent = report.sent,
          .updated = report.updated,
          .noise_scale = report.noise_scale};
}

Json head_of(const train::Job& job, const char* event, std::int64_t steps) {
  Json line = metrics::event_line(event, steps);
  line.set("schema", "lockstep.metrics/1")
      .set("time", wall_time())
      .set("lockstep", version())
      .set("model", job.spec.model.name)
      .set("parameters", count(job.model).total)
      .set("layout", to_text(job.spec.layout))
      .set("ranks", job.mesh.world())
      .set("dtype", std::string(to_text(job.spec.train.dtype)))
      .set("steps", job.spec.train.steps);
  return line;
}

}  // namespace

Result<void> check_metrics(const std::string& directory, bool begins) {
  if (const auto made = make_directory(directory); !made.ok()) return made.error();
  const std::string path = metrics_path(directory);
  if (begins && std::filesystem::exists(path))
    return Error{Code::kBadMetrics, join_parts("`", path, "` is there already"),
                 "it tells of an earlier run: resume that one, or name another directory"};
  if (!begins) return check_writable(path);
  return {};
}

Result<TrainMetrics> TrainMetrics::open(Result<metrics::MetricsFile> file,
                                        const std::string& directory, const train::Job& job,
                                        Json head) {
  if (!file.ok()) return file.error();
  const std::int64_t first = head.find("step")->as_int() + 1;
  Result<metrics::EventFile> events = metrics::EventFile::create(directory, first, wall_time());
  if (!events.ok()) return events.error();
  if (file->dropped() > 0) head.set("dropped_lines", file->dropped());
  TrainMetrics made(job, *std::move(file), *std::move(events));
  made.add(head);
  return made;
}

Result<TrainMetrics> TrainMetrics::begin(const std::string& directory, const train::Job& job,
                                         std::int64_t steps) {
  return open(metrics::MetricsFile::create(metrics_path(directory)), directory, job,
              head_of(job, "start", steps));
}

Result<TrainMetrics> TrainMetrics::resume(const std::string& directory, const train::Job& job,
                                          std::int64_t steps) {
  return open(metrics::MetricsFile::resume(metrics_path(directory), steps), directory, job,
              head_of(job, "resume", steps));
}

void TrainMetrics::add(const Json& line) { demand(file_.add(line)); }

void TrainMetrics::step(std::int64_t step, const train::StepReport& report) {
  const metrics::StepMetrics line = metrics_of(*job_, step, report);
  add(to_json(line));
  std::vector<metrics::Scalar> scalars = {
      {"train/loss", line.loss},
      {"train/grad_norm", line.grad_norm},
      {"train/lr", line.lr},
      {"speed/tokens_per_second", line.tokens_per_second()},
      {"speed/seconds", line.time.value},
      {"memory/peak_bytes", static_cast<double>(line.peak_bytes)},
      {"traffic/sent_bytes", static_cast<double>(line.sent.value)}};
  if (line.noise_scale) scalars.push_back({"train/noise_scale", *line.noise_scale});
  demand(events_.add(line.step, wall_time(), scalars));
}

void TrainMetrics::evaluation(std::int64_t step, const train::EvalReport& report) {
  const metrics::EvalMetrics line = {.step = step + 1,
                                     .samples = job_->spec.train.eval_samples,
                                     .tokens = report.tokens,
                                     .loss = report.loss,
                                     .time = report.time};
  add(to_json(line));
  const metrics::Scalar scalars[] = {{"eval/loss", line.loss},
                                     {"eval/perplexity", line.perplexity()}};
  demand(events_.add(line.step, wall_time(), scalars));
}

void TrainMetrics::event(const std::string& name, std::int64_t steps, const Json& more) {
  Json line = metrics::event_line(name, steps);
  for (const Json::Member& member : more.members()) line.set(member.key, member.value);
  add(line);
}

}  // namespace lockstep::cli
#endif
