#include "cli/train_log.h"

#if LOCKSTEP_WITH_TORCH
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "cli/help.h"
#include "cli/table.h"

namespace lockstep::cli {
namespace {

std::string noise_text(const train::StepReport& report) {
  if (!report.noise_scale) return "-";
  const double tokens = *report.noise_scale;
  return std::abs(tokens) < 1e8 ? with_commas(std::llround(tokens)) : strf("%.4g", tokens);
}
void add_noise(const train::StepReport& report, Json& step) {
  step.set("first_grad_norm", std::sqrt(report.first.squares));
  step.set("first_tokens", report.first.tokens);
  step.set("noise_scale", report.noise_scale ? Json(*report.noise_scale) : Json());
}

}  // namespace

ExitCode exit_code_of(train::Ending ending) {
  return ending == train::Ending::kFinished  ? ExitCode::kOk
         : ending == train::Ending::kStopped ? ExitCode::kTerminated
                                             : ExitCode::kRunFailed;
}

TrainLog::TrainLog(const train::Job& job, std::string ranks, const TrainWishes& wishes,
                   Output& output)
    : job_(job),
      prediction_(train::predict(job, Rank{0})),
      predictions_{{job.spec.batch.global_batch, prediction_}},
      ranks_(std::move(ranks)),
      every_(wishes.every),
      files_(wishes.files),
      output_(output) {}

void TrainLog::begin() const {
  if (output_.json) return;
  const plan::Spec& spec = job_.spec;
  const std::string name = spec.model.name.empty() ? "a model" : spec.model.name;
  output_.out << bold(name) << " on " << ranks_ << ": " << to_text(spec.layout) << "\n\n";
  row("model",
      join_parts(counted(count(job_.model).total, "parameter"), " in ", to_text(spec.train.dtype)));
  const std::int64_t copies = spec.layout.degrees.dp;
  row("batch",
      join_parts(counted(spec.batch.global_batch, "sequence"), " of ",
                 counted(spec.batch.seq, "token"),
                 " a step: ", copies == 1 ? "" : join_parts(copies, " copies x "),
                 counted(spec.num_microbatches(), "microbatch"), " of ", spec.batch.microbatch));
  if (const plan::BatchRamp& ramp = spec.batch.ramp; !ramp.is_none())
    row("", join_parts("from ", ramp.start, " on, ", ramp.increment,
                       " more at a time, over the first ", counted(ramp.samples, "sample")));
  row("data", join_parts("made-up text, seed ", spec.train.seed));
  if (measures_noise())
    row("noise",
        join_parts("scale in tokens, averaged over ", counted(spec.train.noise_scale, "step")));
  row("predicted", join_parts(to_text(Bytes{prediction_.peak_bytes}),
                              " of tensors at the peak of rank 0, in ", prediction_.peak_op));
  if (job_.mesh.world() > 1)
    row("", join_parts(to_text(prediction_.sent), " sent by rank 0 in every step"));
  output_.out << "\n   step      loss  grad norm" << (measures_noise() ? "  noise scale" : "")
              << "     time   tokens/s      peak      sent\n";
}

void TrainLog::step(std::int64_t step, const train::StepReport& report, bool is_last) {
  reports_.push_back(report);
  time_ += report.time;
  tokens_ += report.tokens;
  ++steps_;
  const bool is_due =
      step == 0 || (step + 1) % every_ == 0 || is_last || report.stop || !report.updated;
  if (output_.json || !is_due) return;
  const double rate = static_cast<double>(tokens_) / time_.value;
  output_.out << strf("  %5lld  %8.5f  %9.4f", static_cast<long long>(step + 1), report.loss,
                      report.grad_norm)
              << (measures_noise() ? strf("  %11s", noise_text(report).c_str()) : "")
              << strf("  %7s  %9s  %8s  %8s  ",
                      to_text(Seconds{time_.value / static_cast<double>(steps_)}).c_str(),
                      with_commas(static_cast<std::int64_t>(rate)).c_str(),
                      to_text(Bytes{report.peak_bytes}).c_str(), to_text(report.sent).c_str())
              << compared(report) << std::endl;
  time_ = {};
  tokens_ = steps_ = 0;
}

ExitCode TrainLog::conclude(train::Ending ending, const cost::RunTimeline& measured) {
  Result<std::vector<std::string>> written = std::vector<std::string>();
  if (!measured.steps.empty()) written = write_run_files(files_, job_.spec, job_.program, measured);
  if (output_.json) print_json(output_, json(ending));
  if (!written.ok()) return fail(output_, written.error());
  const auto steps = static_cast<std::int64_t>(reports_.size());
  if (ending == train::Ending::kDiverged)
    return fail(output_,
                Error{Code::kDiverged,
                      join_parts("loss or gradient norm of step ", steps, " is not finite"),
                      "that step changed nothing; try a smaller train.lr, or train.clip = 1"});
  if (output_.json) return exit_code_of(ending);
  Seconds time;
  std::int64_t tokens = 0;
  for (const train::StepReport& report : reports_) {
    time += report.time;
    tokens += report.tokens;
  }
  output_.out << '\n'
              << (ending == train::Ending::kStopped ? "stopped as asked, after " : "trained ")
              << counted(steps, "step") << " on " << counted(tokens, "token") << " in "
              << to_text(time)
              << strf(": loss %.5f -> %.5f\n", reports_.front().loss, reports_.back().loss);
  for (const std::string& file : *written) output_.out << "wrote " << file << '\n';
  return exit_code_of(ending);
}

std::string TrainLog::bold(const std::string& text) const {
  return output_.colour ? join_parts("\x1b[1m", text, "\x1b[0m") : text;
}

std::string TrainLog::dim(const std::string& text) const {
  return output_.colour ? join_parts("\x1b[2m", text, "\x1b[0m") : text;
}

void TrainLog::row(const char* label, const std::string& text) const {
  constexpr int kIndent = 13;
  output_.out << "  " << dim(strf("%-11s", label))
              << wrapped(text, kIndent, kIndent, output_.width);
}

// Whether memory and traffic were what was predicted.
std::string TrainLog::compared(const train::StepReport& report) {
  auto known = predictions_.find(report.sequences);
  if (known == predictions_.end())
    known =
        predictions_
            .emplace(report.sequences, train::predict(with_batch(job_, report.sequences), Rank{0}))
            .first;
  const train::Prediction& foreseen = known->second;
  if (report.peak_bytes == foreseen.peak_bytes && report.sent == foreseen.sent)
    return dim("as predicted");
  const auto off = [](std::int64_t measured, std::int64_t predicted, const char* what) {
    if (measured == predicted) return std::string();
    return strf("%s %+.2g %%", what,
                100.0 * static_cast<double>(measured - predicted) /
                    static_cast<double>(std::max<std::int64_t>(predicted, 1)));
  };
  const std::string peak = off(report.peak_bytes, foreseen.peak_bytes, "peak");
  const std::string sent = off(report.sent.value, foreseen.sent.value, "sent");
  return join_parts(peak, peak.empty() || sent.empty() ? "" : ", ", sent);
}

Json TrainLog::json(train::Ending ending) const {
  Json steps = Json::array();
  for (const train::StepReport& report : reports_) {
    Json step = Json::object({{"sequences", report.sequences},
                              {"loss", report.loss},
                              {"grad_norm", report.grad_norm},
                              {"tokens", report.tokens},
                              {"updated", report.updated},
                              {"seconds", report.time.value},
                              {"peak_bytes", report.peak_bytes},
                              {"sent_bytes", report.sent.value}});
    if (measures_noise()) add_noise(report, step);
    steps.push(std::move(step));
  }
  return Json::object({{"schema", "lockstep.train/1"},
                       {"model", job_.spec.model.name},
                       {"parameters", count(job_.model).total},
                       {"layout", to_text(job_.spec.layout)},
                       {"ranks", job_.mesh.world()},
                       {"predicted_peak_bytes", prediction_.peak_bytes},
                       {"predicted_sent_bytes", prediction_.sent.value},
                       {"ending", ending == train::Ending::kFinished  ? "finished"
                                  : ending == train::Ending::kStopped ? "stopped"
                                                                      : "diverged"},
                       {"steps", std::move(steps)}});
}

}  // namespace lockstep::cli
#endif
