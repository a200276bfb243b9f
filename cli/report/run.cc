#include "cli/report/run.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>

#include "cli/config/effective.h"
#include "cli/report/timeline.h"
#include "cli/text_file.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/config/document.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A number, or one of the texts that stand for one that is not finite.
Result<double> number(const Json& line, const char* key) {
  const Json* const found = line.find(key);
  if (found != nullptr && found->is_number()) return found->as_real();
  const std::string text = found != nullptr && found->is_text() ? found->as_text() : "";
  if (text == "NaN") return kUnknown;
  if (text == "Infinity" || text == "-Infinity")
    return (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
  return Error{Code::kBadMetrics, join_parts("it has no number `", key, "`")};
}

// Whole, as the line has it.
Result<std::int64_t> whole(const Json& line, const char* key) {
  const Json* const found = line.find(key);
  if (found != nullptr && found->is_int()) return found->as_int();
  return Error{Code::kBadMetrics, join_parts("it has no whole number `", key, "`")};
}

// The steps between one start or resume and the next.
struct Stretch {
  Json head;
  std::int64_t steps = 0, tokens = 0, as_predicted = 0;
  double seconds = 0;
  std::int64_t peak = 0, sent = 0;  // the most of any step
};

// metrics.jsonl, line after line.
class Lines {
 public:
  explicit Lines(RunFolder& run) : run_(run) {}

  Result<void> take(const Json& line) {
    const Json* const found = line.find("event");
    if (found == nullptr || !found->is_text())
      return Error{Code::kBadMetrics, "it has no text `event`"};
    event_ = found->as_text();
    const std::int64_t step = line.find("step")->as_int();
    if (step < step_)
      return Error{Code::kBadMetrics,
                   join_parts("its step is ", step, ", behind one that is ", step_)};
    if (event_ == "start" || event_ == "resume") return begin(line, step);
    if (stretches_.empty()) return Error{Code::kBadMetrics, "no `start` is above it"};
    if (event_ == "step" || event_ == "skip") return add_step(line, step);
    if (event_ == "eval") return evaluation(line, step);
    if (event_ == "save") ++saves_;
    return {};
  }

  bool is_empty() const { return stretches_.empty(); }
  void finish(Json& json) const;

 private:
  Result<void> begin(const Json& line, std::int64_t step) {
    if (!stretches_.empty() && event_ == "resume")
      run_.resumed.push_back(static_cast<double>(step));
    Json head = Json::object({{"event", event_}, {"step", step}});
    for (const char* key : {"layout", "lockstep", "model", "dtype"}) {
      if (line.find(key) == nullptr || !line.find(key)->is_text())
        return Error{Code::kBadMetrics, join_parts("it has no text `", key, "`")};
      head.set(key, *line.find(key));
    }
    for (const char* key : {"parameters", "seq", "global_batch", "microbatch", "ranks", "steps"})
      head.set(key, LS_TRY(whole(line, key)));
    head.set("time", LS_TRY(number(line, "time")));
    for (const char* key :
         {"dropped_lines", "predicted_peak_bytes", "predicted_sent_bytes", "cluster"})
      if (const Json* more = line.find(key)) head.set(key, *more);
    stretches_.push_back({std::move(head)});
    return {};
  }

  Result<void> add_step(const Json& line, std::int64_t step) {
    if (step == step_)
      return Error{Code::kBadMetrics, join_parts("step ", step, " is there a second time")};
    for (std::size_t i = 0; i < std::size(kRunCurves); ++i)
      if (i != kEval)
        run_.curves[i].push_back({static_cast<double>(step), LS_TRY(number(line, kRunCurves[i]))});
    Stretch& now = stretches_.back();
    const std::int64_t peak = LS_TRY(whole(line, "peak_bytes")),
                       sent = LS_TRY(whole(line, "sent_bytes")),
                       tokens = LS_TRY(whole(line, "tokens"));
    samples_ = LS_TRY(whole(line, "samples"));
    now.seconds += LS_TRY(number(line, "seconds"));
    now.tokens += tokens;
    now.peak = std::max(now.peak, peak), now.sent = std::max(now.sent, sent);
    ++now.steps;
    const auto is = [&](const char* key, std::int64_t measured) {
      const Json* const predicted = now.head.find(key);
      return predicted != nullptr && predicted->is_int() && predicted->as_int() == measured;
    };
    now.as_predicted += is("predicted_peak_bytes", peak) && is("predicted_sent_bytes", sent);
    skipped_ += event_ == "skip";
    step_ = step;
    return {};
  }

  Result<void> evaluation(const Json& line, std::int64_t step) {
    const double loss = LS_TRY(number(line, "loss"));
    run_.curves[kEval].push_back({static_cast<double>(step), loss});
    const Json told = Json::object(
        {{"step", step}, {"loss", loss}, {"perplexity", LS_TRY(number(line, "perplexity"))}});
    if (best_.is_null() || loss < best_loss_) best_ = told, best_loss_ = loss;
    eval_ = told;
    return {};
  }

  static constexpr std::size_t kEval = 1;

  RunFolder& run_;
  std::string event_;
  std::int64_t step_ = 0, samples_ = 0, skipped_ = 0, saves_ = 0;
  Json eval_, best_;
  double best_loss_ = 0;
  std::vector<Stretch> stretches_;
};

// What is not finite as the text that metrics.jsonl has.
Json told(double value) {
  const Result<Json> read = Json::parse(Json(value).dump());
  return read.ok() ? *read : Json(value);
}

Json stretch_json(const Stretch& one) {
  Json json = one.head;
  json.set("made", one.steps).set("as_predicted", one.as_predicted);
  if (one.steps == 0) return json;
  json.set("peak_bytes", one.peak).set("sent_bytes", one.sent).set("seconds", one.seconds);
  if (one.seconds > 0) json.set("tokens_per_second", static_cast<double>(one.tokens) / one.seconds);
  return json;
}

void Lines::finish(Json& json) const {
  const Json& head = stretches_.back().head;
  for (const char* key : {"model", "parameters", "dtype", "seq", "global_batch", "microbatch",
                          "steps", "layout", "ranks", "lockstep"})
    json.set(key, *head.find(key));
  json.set("ending", event_ == "end"       ? "finished"
                     : event_ == "stop"    ? "stopped as asked"
                     : event_ == "diverge" ? "diverged"
                                           : "running, or ended without a word");
  std::int64_t steps = 0, tokens = 0;
  double seconds = 0;
  for (const Stretch& one : stretches_)
    steps += one.steps, tokens += one.tokens, seconds += one.seconds;
  json.set("done", step_).set("samples", samples_).set("tokens", tokens);
  json.set("seconds", seconds).set("skipped", skipped_).set("saves", saves_);
  if (seconds > 0) json.set("tokens_per_second", static_cast<double>(tokens) / seconds);
  if (const auto& losses = run_.curves[0]; !losses.empty()) {
    json.set("first_loss", told(losses.front().y)).set("last_loss", told(losses.back().y));
    const auto peaks = std::ranges::max_element(stretches_, {}, &Stretch::peak);
    json.set("peak_bytes", peaks->peak)
        .set("sent_bytes", std::ranges::max_element(stretches_, {}, &Stretch::sent)->sent);
  }
  const auto finite = [](Json one) {
    for (const char* key : {"loss", "perplexity"}) one.set(key, told(one.find(key)->as_real()));
    return one;
  };
  if (!eval_.is_null()) json.set("eval", finite(eval_)).set("best_eval", finite(best_));
  json.set("starts", Json::list(stretches_, stretch_json));
}

void add_note(Json& json, const std::string& text) {
  Json notes = *json.find("notes");
  json.set("notes", notes.push(text));
}

void read_checkpoints(const std::string& folder, Json& json) {
  Json list = Json::array();
  auto paths = checkpoint::candidates(files::real_disk(), folder);
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    const auto opened = checkpoint::Checkpoint::open(path);
    const auto manifest =
        read_text((std::filesystem::path(path) / checkpoint::kManifestName).string());
    if (!opened.ok() || !manifest.ok()) {
      add_note(json, join_parts("checkpoint ", name, " cannot be read: ",
                                (opened.ok() ? manifest.error() : opened.error()).message));
      continue;
    }
    list.push(Json::object({{"name", name},
                            {"step", opened->manifest().step},
                            {"samples", opened->manifest().samples},
                            {"tokens", opened->manifest().tokens},
                            {"layout", opened->manifest().layout},
                            {"bytes", opened->file_bytes()},
                            {"digest", to_hex(xxh3_128(*manifest))}}));
  }
  json.set("checkpoints", std::move(list));
}

// environment.json, key by key.
void read_environment(const std::string& folder, Json& json) {
  const std::string name = (std::filesystem::path(folder) / "environment.json").string();
  Json list = Json::array();
  const auto text = read_text(name);
  const Result<Json> read = text.ok() ? Json::parse(*text) : Result<Json>(text.error());
  if (!read.ok() || !read->is_object())
    add_note(json, "there is no environment.json that can be read");
  else
    for (const Json::Member& member : read->members()) {
      if (member.key == "schema") continue;
      std::string value = member.value.is_text() ? member.value.as_text() : member.value.dump();
      if (member.key == "command" && member.value.is_array()) {
        value.clear();
        for (const Json& word : member.value.items())
          value += join_parts(value.empty() ? "" : " ", word.is_text() ? word.as_text() : "");
      }
      if (member.value.is_object()) {
        value.clear();
        for (const Json::Member& one : member.value.members())
          value += join_parts(value.empty() ? "" : ", ", one.key, " ",
                              one.value.is_text() ? one.value.as_text() : one.value.dump());
      }
      list.push(Json::object({{"key", member.key}, {"value", value}}));
    }
  json.set("environment", std::move(list));
}

// config.toml: its text, its keys, and the picture of a step that follows from it.
void read_config(const std::string& folder, RunFolder& run) {
  const std::string name = (std::filesystem::path(folder) / "config.toml").string();
  config::Report report;
  const auto text = read_text(name);
  const auto document =
      text.ok() ? config::parse_document(*text, name, config::Format::kToml, report) : std::nullopt;
  const auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  if (!spec || !report.ok())
    return add_note(run.json, "there is no config.toml that can be read: no settings, no timeline");
  run.json.set("config", *text);
  for (const Shown& one : effective(*document))
    if (one.value) run.settings.emplace_back(one.field->path, to_text(*one.value));
  Result<std::string> drawn = step_picture(*spec, folder);
  if (drawn.ok())
    run.timeline = *std::move(drawn);
  else
    run.json.set("no_timeline", drawn.error().message);
}

}  // namespace

Result<RunFolder> read_run(const std::string& folder) {
  const std::string name = (std::filesystem::path(folder) / "metrics.jsonl").string();
  if (!std::filesystem::is_regular_file(name))
    return Error{Code::kFileUnreadable, join_parts("`", folder, "` has no metrics.jsonl"),
                 "name the folder of --save, or of --metrics, of `lockstep train`"};
  RunFolder run;
  run.json = Json::object({{"name", folder}, {"notes", Json::array()}});
  Lines lines(run);
  const bool is_cut = LS_TRY(metrics::read_lines(
      name, [&](const Json& line, const std::string& /*text*/) { return lines.take(line); }));
  if (lines.is_empty())
    return Error{Code::kBadMetrics, join_parts("`", name, "` has no whole line yet"),
                 "a run writes the first when its weights are there"};
  lines.finish(run.json);
  if (is_cut) add_note(run.json, "the last line of metrics.jsonl is cut short, and left out");
  read_config(folder, run);
  read_environment(folder, run.json);
  read_checkpoints(folder, run.json);
  return run;
}

}  // namespace lockstep::cli
