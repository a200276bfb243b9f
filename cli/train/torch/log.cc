#include "cli/train/torch/log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <utility>

#include "cli/generate/request.h"
#include "cli/ranks.h"
#include "cli/simulate/timing.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/draw/trace.h"
#include "lockstep/model/flops.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/spec/step.h"

namespace lockstep::cli {
namespace {

constexpr Seconds kBetweenBars = {0.1};
constexpr Seconds kBetweenTroubles = {60};

std::string noise_text(const train::StepReport& report) {
  if (!report.noise_scale) return "-";
  const double tokens = *report.noise_scale;
  return std::abs(tokens) < 1e8 ? with_commas(std::llround(tokens)) : strf("%.4g", tokens);
}

std::string bits(double value) { return to_hex(std::bit_cast<std::uint64_t>(value)); }

std::string off_by(std::int64_t measured, std::int64_t predicted, const char* what) {
  if (measured == predicted) return "";
  return strf("%s %+.2g %%", what,
              100.0 * static_cast<double>(measured - predicted) /
                  static_cast<double>(std::max<std::int64_t>(predicted, 1)));
}

// What of memory and traffic was not as predicted; empty: all was.
std::string difference(std::int64_t peak_bytes, Bytes sent, const train::Prediction& predicted) {
  const std::string peak = off_by(peak_bytes, predicted.peak_bytes, "peak");
  const std::string traffic = off_by(sent.value, predicted.sent().value, "comm bytes");
  if (peak.empty() && traffic.empty()) return "";
  return join_parts("not as predicted: ", peak, peak.empty() || traffic.empty() ? "" : ", ",
                    traffic);
}

Result<draw::Figure> predicted_figure(const RunFiles& files, const spec::Spec& spec,
                                      Seconds measured) {
  SimulateRequest request = request_of(spec);
  request.calibration = files.calibration;
  const auto timing = LS_TRY(Timing::create(request));
  const auto timed = LS_TRY(timing.time(request.candidates.front()));
  draw::Figure figure = timed.figure;
  figure.title = "predicted";
  if (request.calibration) return figure;
  draw::divide_times(figure, timed.makespan.value / measured.value);
  figure.time_unit = "s";
  figure.title = "predicted by FLOPs";
  return figure;
}

// Writes those that are wanted and returns their names. The trace shows the last step of
// `measured`, which is of `program`, the program of `spec`. Without a calibration the prediction is
// in proportion to FLOPs and drawn as long as the measured step; its title says so.
Result<std::vector<std::string>> write_run_files(const RunFiles& files, const spec::Spec& spec,
                                                 const program::Program& program,
                                                 const cost::RunTimeline& measured) {
  std::vector<std::string> written;
  if (!files.timeline.empty()) {
    LS_TRY(write_text(files.timeline, write_timeline(measured)));
    written.push_back(files.timeline);
  }
  if (files.trace.empty()) return written;
  const program::StepTimeline& step = measured.steps.back();
  const model::Model model = LS_TRY(model::describe(spec.model));
  draw::Figure run = draw::figure_of(
      program, step, cost::program_bytes(model, program.step, spec::step_sizes(spec)));
  run.title = join_parts("measured, step ", step.step + 1);
  const draw::Figure predicted = LS_TRY(predicted_figure(files, spec, run.makespan));
  const std::vector<draw::Figure> both = {predicted, std::move(run)};
  LS_TRY(write_text(files.trace, draw::trace(both)));
  written.push_back(files.trace);
  return written;
}

std::pair<const char*, ExitCode> look_of(train::Ending ending) {
  if (ending == train::Ending::kFinished) return {"finished", ExitCode::kOk};
  if (ending == train::Ending::kStopped) return {"stopped", ExitCode::kTerminated};
  return {ending == train::Ending::kCorrupt ? "corrupt" : "diverged", ExitCode::kRunFailed};
}

}  // namespace

ExitCode exit_code_of(train::Ending ending) { return look_of(ending).second; }

TrainLog::TrainLog(const train::Job& job, const std::string& ranks, const std::string& data,
                   const TrainOptions& options, Output& output, std::function<TimePoint()> now)
    : job_(job),
      prediction_(train::predict(job, Rank{0})),
      predictions_{{job.spec.batch.global_batch, prediction_}},
      ranks_(ranks),
      data_(data),
      options_(options),
      output_(output),
      form_(output.json      ? Form::kJson
            : options.oracle ? Form::kBits
                             : Form::kTable),
      now_(std::move(now)) {
  if (job.evaluation) evaluation_ = train::predict(as_evaluation(job), Rank{0});
}

void TrainLog::begin() {
  if (form_ != Form::kTable) return;
  const spec::Spec& spec = job_.spec;
  const std::string name = spec.model.name.empty() ? "a model" : spec.model.name;
  output_.out << output_.paint(style::kBold, name) << " on " << ranks_ << ": "
              << to_text(spec.layout) << "\n\n";
  row("model",
      join_parts(counted(count(job_.model).total, "parameter"), " in ", to_text(spec.train.dtype)));
  const std::int64_t copies = spec.layout.degrees.dp;
  row("batch",
      join_parts(counted(spec.batch.global_batch, "sequence"), " of ",
                 counted(spec.batch.seq, "token"),
                 " a step: ", copies == 1 ? "" : join_parts(copies, " copies x "),
                 counted(spec.num_microbatches(), "microbatch"), " of ", spec.batch.microbatch));
  if (const spec::BatchRamp& ramp = spec.batch.ramp; !ramp.is_none())
    row("", join_parts("from ", ramp.start, " on, ", ramp.increment,
                       " more at a time, over the first ", counted(ramp.samples, "sample")));
  if (const std::int64_t cp = spec.layout.degrees.cp; cp > 1)
    row("context",
        join_parts(with_commas(spec.batch.seq / cp), " tokens of a sequence on each of ", cp,
                   " ranks, of which the busiest has ",
                   strf("%.3f", model::attention_imbalance(job_.model, spec.layout.context, cp,
                                                           spec.batch.seq)),
                   " x the mean in attention"));
  row("data", data_);
  if (job_.evaluation)
    row("validation", join_parts(counted(spec.train.eval_samples, "sequence"), ", looked at every ",
                                 counted(spec.train.eval_interval, "step")));
  if (measures_noise())
    row("noise",
        join_parts("scale in tokens, averaged over ", counted(spec.train.noise_scale, "step")));
  tell_predictions();
  if (const std::int64_t times = spec.num_microbatches();
      spec.layout.zero >= 2 && spec.layout.reduce == spec::Period::kMicrobatch && copies > 1 &&
      times > 1)
    row("",
        join_parts("zero ", spec.layout.zero, " reduces gradients after every microbatch, ", times,
                   " times what layout.reduce = \"step\" sends, which keeps whole "
                   "gradients for it"));
  if (!options_.save.empty())
    row("saves",
        join_parts(
            "to ", options_.save,
            options_.save_interval == 0
                ? ", at the end"
                : join_parts(", every ", counted(options_.save_interval, "step"),
                             " and at the end"),
            options_.keep == 0 ? "" : join_parts("; the newest ", options_.keep, " are kept")));
  if (!options_.samples.empty()) row("samples", options_.samples);
  if (!options_.metrics.empty() && options_.metrics != options_.save)
    row("metrics", options_.metrics);
  output_.out << std::flush;  // weights are drawn next
}

void TrainLog::tell_predictions() const {
  row("predicted", join_parts(to_text(Bytes{prediction_.peak_bytes}),
                              " of tensors at the peak of rank 0, in ", prediction_.peak_op));
  if (job_.mesh.world() > 1)
    row("", join_parts(to_text(prediction_.sent()), " sent by rank 0 in every step"));
  const std::int64_t ep = job_.spec.layout.degrees.ep;
  if (ep == 1) return;
  const auto peak = [&](double times) {
    return to_text(Bytes{train::peak_if_met(job_, Rank{0}, times)});
  };
  row("",
      join_parts("both if all experts meet as many rows; its peak is ", peak(2),
                 " if its own meet twice as many, ", peak(static_cast<double>(ep)), " at worst"));
}

void TrainLog::drawn(std::int64_t elements) {
  const std::lock_guard lock(mutex_);
  elements_ += elements;
  const TimePoint last = std::max(drawn_, TimePoint{});  // a short start shows nothing
  if (!output_.live || form_ != Form::kTable || now_() - last < kBetweenBars) return;
  drawn_ = now_();
  output_.status("drawing initial weights: " + with_commas(elements_));
}

void TrainLog::loaded(const train::Loaded& loaded) {
  if (options_.start != train::Start::kWeights) first_ = loaded.progress.step;
  const bool is_snapshot =
      !options_.snapshots.empty() && loaded.path.starts_with(options_.snapshots + "/");
  if (options_.resumes() && !is_snapshot) saved_ = loaded.path;
  if (form_ != Form::kTable && !options_.snapshots.empty())  // nobody is there to look
    for (const Error& error : loaded.skipped)
      trouble(error.message, "left aside: " + error.message);
  if (form_ != Form::kTable) return;
  for (const Error& error : loaded.skipped) row("", join_parts("left aside: ", error.message));
  row(options_.start != train::Start::kWeights ? "resumed" : "weights",
      options_.start != train::Start::kWeights
          ? join_parts("from ", loaded.path, " after ", counted(loaded.progress.step, "step"),
                       " and ", counted(loaded.progress.samples, "sample"), ", saved under ",
                       loaded.layout)
          : join_parts("of ", loaded.path));
}

void TrainLog::saved(const train::SaveEnding& ending) {
  if (ending.path.ok())
    saved_ = (std::filesystem::path(options_.save) / checkpoint::folder_name(ending.step)).string();
  else
    trouble("save", join_parts("step ", ending.step, " is not saved: ", ending.path.error().message,
                               "; training continues"));
}

void TrainLog::snapshot_failed(std::int64_t step, const Error& why) {
  trouble("snapshot",
          join_parts("step ", step, " has no snapshot: ", why.message, "; training continues"));
}

void TrainLog::set_aside(const std::string& path) {
  if (form_ == Form::kTable) row("set aside", join_parts("as ", path, ", which nobody removes"));
}

void TrainLog::trouble(const std::string& kind, const std::string& text) {
  const auto [told, is_new] = troubles_.try_emplace(kind, now_());
  if (!is_new && now_() - told->second < kBetweenTroubles) return;
  told->second = now_();
  clear_bar();
  output_.err << "lockstep: " << text << std::endl;
}

std::string TrainLog::way_back() const {
  const std::string command =
      join_parts("make room, then: ", own_command(), options_.resumes() ? "" : " --resume");
  return saved_.empty() ? "no checkpoint of this run is there"
                        : join_parts("the last good checkpoint is ", saved_, "; ", command);
}

// Of the table, with the noise scale where it is measured; columns at the end that the terminal has
// no room for are left out.
std::string TrainLog::line(std::vector<std::string> cells, const std::string& noise) const {
  std::vector<int> widths = {5, 8, 9, 7, 9, 8, 10};
  if (measures_noise()) {
    cells.insert(cells.begin() + 3, noise);
    widths.insert(widths.begin() + 3, 11);
  }
  std::string text;
  int used = 0;
  for (std::size_t i = 0; i < cells.size() && (used += 2 + widths[i]) <= output_.width; ++i)
    text += strf("  %*s", widths[i], cells[i].c_str());
  return text + "\n";
}

void TrainLog::print_titles() {
  if (std::exchange(has_titles_, true)) return;
  output_.out << '\n'
              << line({"step", "loss", "grad norm", "time", "tokens/s", "peak", "comm bytes"},
                      "noise scale");
}

void TrainLog::step(std::int64_t step, const train::StepReport& report,
                    std::optional<std::uint64_t> digest) {
  if (done_++ == 0) first_loss_ = report.loss;
  last_loss_ = report.loss;
  all_time_ += report.time;
  all_tokens_ += report.tokens;
  skipped_ += report.updated ? 0 : 1;
  if (form_ == Form::kJson) return reports_.push_back({report, digest});
  if (form_ == Form::kBits) {
    output_.out << "step " << step + 1 << " loss " << bits(report.loss) << " grad_norm "
                << bits(report.grad_norm) << " state " << to_hex(digest.value_or(0)) << std::endl;
    return;
  }
  time_ += report.time;
  tokens_ += report.tokens;
  ++steps_;
  left_.add(report.sequences, report.time);
  const bool is_last = step + 1 == job_.spec.train.steps;
  const std::string off = difference(report.peak_bytes, report.sent, prediction_of(report));
  const bool is_due = step == first_ || (step + 1) % options_.every == 0 || is_last ||
                      report.stop || !report.updated || off != off_;
  off_ = off;
  if (is_due) print_step(step, report);
  if (!is_last) print_bar(step, report);
}

void TrainLog::print_step(std::int64_t step, const train::StepReport& report) {
  clear_bar();
  print_titles();
  const double rate = static_cast<double>(tokens_) / time_.value;
  output_.out << line(
      {std::to_string(step + 1), strf("%.5f", report.loss), strf("%.4f", report.grad_norm),
       to_text(Seconds{time_.value / static_cast<double>(steps_)}),
       with_commas(static_cast<std::int64_t>(rate)), to_text(Bytes{report.peak_bytes}),
       to_text(report.sent)},
      noise_text(report));
  if (!report.updated) remark("not finite: this step changed nothing");
  remark(off_);
  output_.out << std::flush;
  time_ = {};
  tokens_ = steps_ = 0;
}

void TrainLog::print_bar(std::int64_t step, const train::StepReport& report) {
  if (!output_.live || now_() - bar_ < kBetweenBars) return;
  bar_ = now_();
  const spec::StepBatch now = job_.batch(step), end = job_.batch(job_.spec.train.steps);
  const metrics::Progress progress = {
      .step = step + 1,
      .steps = job_.spec.train.steps,
      .loss = report.loss,
      .tokens_per_second = static_cast<double>(report.tokens) / report.time.value,
      .left = left_.of(end.first - now.first - now.sequences)};
  output_.status(metrics::progress_line(progress, output_.width - 1));
}

void TrainLog::clear_bar() const {
  if (output_.live && std::max(drawn_, bar_).since_start.value >= 0) output_.status("");
}

void TrainLog::evaluation(std::int64_t step, const train::EvalReport& report) {
  if (form_ == Form::kJson) evaluations_.push_back({step, report});
  if (form_ == Form::kBits)
    output_.out << "step " << step + 1 << " eval " << bits(report.loss) << std::endl;
  if (form_ != Form::kTable) return;
  clear_bar();
  output_.out << strf("  %5lld  %8.5f", static_cast<long long>(step + 1), report.loss)
              << " validation, perplexity " << strf("%.4g", std::exp(report.loss)) << ", in "
              << to_text(report.time) << '\n';
  remark(difference(report.peak_bytes, report.sent, *evaluation_));
  output_.out << std::flush;
}

void TrainLog::sample(std::int64_t step, const std::string& prompt, const std::string& text) {
  if (form_ != Form::kTable) return;
  clear_bar();
  output_.out << strf("  %5lld  ", static_cast<long long>(step + 1))
              << output_.paint(style::kDim, shown(prompt));
  constexpr const char* kIndent = "         ";
  std::string lines;
  for (const char c : shown(text))
    lines += c == '\n' ? std::string("\n") + kIndent : std::string(1, c);
  output_.out << lines << '\n' << std::flush;
}

// What is told of steps that are taken anew is forgotten.
void TrainLog::rolled_back(const Error& why, const train::Loaded& to) {
  clear_bar();
  output_.err << "lockstep: " << why.message << "; the run resumes from " << to.path << std::endl;
  saved_ = to.path;
  const std::int64_t step = to.progress.step;
  first_ = std::min(first_, step);
  done_ = step - first_;
  reports_.resize(std::min(reports_.size(), static_cast<std::size_t>(done_)));
  std::erase_if(evaluations_, [&](const Evaluated& one) { return one.step >= step; });
}

Error TrainLog::diverged() const {
  const std::int64_t steps = first_ + done_;
  const bool skips = job_.spec.train.on_nonfinite == spec::OnNonfinite::kSkip;
  return {Code::kDiverged,
          skips ? join_parts("loss or gradient norm of ", train::kMostSkipped + 1,
                             " steps in a row is not finite, up to step ", steps)
                : join_parts("loss or gradient norm of step ", steps, " is not finite"),
          skips ? "they changed nothing; try a smaller train.lr, or train.clip = 1"
                : "that step changed nothing; try a smaller train.lr, or "
                  "train.clip = 1"};
}

ExitCode TrainLog::conclude(train::Ending ending, const cost::RunTimeline& measured) {
  clear_bar();
  Result<std::vector<std::string>> written = std::vector<std::string>();
  if (!measured.steps.empty())
    written = write_run_files(options_.files, job_.spec, job_.program, measured);
  if (form_ == Form::kJson) print_json(output_, json(ending));
  if (!written.ok()) return fail(output_, written.error());
  if (ending == train::Ending::kDiverged) return fail(output_, diverged());
  if (form_ == Form::kTable) print_ending(ending);
  if (form_ == Form::kTable)
    for (const std::string& file : *written) output_.out << "wrote " << file << '\n';
  return exit_code_of(ending);
}

void TrainLog::print_ending(train::Ending ending) const {
  if (done_ == 0) {
    output_.out << "\nnothing left to do: " << counted(first_, "step") << " of "
                << with_commas(job_.spec.train.steps) << " are done\n";
    return;
  }
  output_.out << '\n'
              << (ending == train::Ending::kStopped ? "stopped as asked, after " : "trained ")
              << counted(done_, "step") << " on " << counted(all_tokens_, "token") << " in "
              << to_text(all_time_) << strf(": loss %.5f -> %.5f", first_loss_, last_loss_);
  if (skipped_ > 0) output_.out << ", " << counted(skipped_, "step") << " skipped";
  output_.out << '\n';
  if (!saved_.empty()) output_.out << "saved " << saved_ << '\n';
}

void TrainLog::row(const char* label, const std::string& text) const {
  output_.row(2, style::kDim, 11, label, text);
}

// Below a line of the table; nothing where there is nothing to say.
void TrainLog::remark(const std::string& text) const {
  constexpr int kIndent = 9;
  if (!text.empty()) output_.out << wrapped(text, kIndent, 0, output_.width);
}

// Given the rows that experts met, where ranks share them.
train::Prediction TrainLog::prediction_of(const train::StepReport& report) {
  if (report.rows_met.empty()) return prediction(report.sequences);
  return train::predict(with_batch(job_, report.sequences), Rank{0}, report.rows_met);
}

const train::Prediction& TrainLog::prediction(std::int64_t sequences) {
  auto known = predictions_.find(sequences);
  if (known == predictions_.end())
    known =
        predictions_.emplace(sequences, train::predict(with_batch(job_, sequences), Rank{0})).first;
  return known->second;
}

Json TrainLog::json(train::Ending ending) const {
  Json steps = Json::array();
  for (const auto& [report, digest] : reports_) {
    Json step = Json::object({{"sequences", report.sequences},
                              {"loss", report.loss},
                              {"grad_norm", report.grad_norm},
                              {"tokens", report.tokens},
                              {"updated", report.updated},
                              {"seconds", report.time.value},
                              {"peak_bytes", report.peak_bytes},
                              {"sent_bytes", report.sent.value}});
    if (measures_noise())
      step.set("first_grad_norm", std::sqrt(report.first.squares))
          .set("first_tokens", report.first.tokens)
          .set("noise_scale", report.noise_scale ? Json(*report.noise_scale) : Json());
    if (digest) step.set("loss_bits", bits(report.loss)).set("state", to_hex(*digest));
    steps.push(std::move(step));
  }
  Json all = Json::object({{"schema", "lockstep.train/1"},
                           {"model", job_.spec.model.name},
                           {"parameters", count(job_.model).total},
                           {"layout", to_text(job_.spec.layout)},
                           {"ranks", job_.mesh.world()},
                           {"predicted_peak_bytes", prediction_.peak_bytes},
                           {"predicted_sent_bytes", prediction_.sent().value},
                           {"ending", look_of(ending).first},
                           {"first_step", first_ + 1},
                           {"steps", std::move(steps)}});
  if (!saved_.empty()) all.set("saved", saved_);
  if (!evaluation_) return all;
  Json evaluations = Json::array();
  for (const auto& [step, report] : evaluations_)
    evaluations.push(Json::object({{"step", step + 1},
                                   {"loss", report.loss},
                                   {"perplexity", std::exp(report.loss)},
                                   {"tokens", report.tokens},
                                   {"seconds", report.time.value},
                                   {"peak_bytes", report.peak_bytes},
                                   {"sent_bytes", report.sent.value}}));
  return all.set("predicted_eval_peak_bytes", evaluation_->peak_bytes)
      .set("predicted_eval_sent_bytes", evaluation_->sent().value)
      .set("evaluations", std::move(evaluations));
}

}  // namespace lockstep::cli
