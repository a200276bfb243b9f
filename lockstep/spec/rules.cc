#include "lockstep/spec/rules.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/mesh/divisors.h"
#include "lockstep/spec/data_fields.h"
#include "lockstep/spec/learning_rate.h"
#include "lockstep/spec/train_rules.h"

namespace lockstep::spec {
namespace {

using config::Report;
using config::Settings;

// Sides that were written down become labels, the first of them the primary one; a side that is a
// default or follows from others becomes a note. What was set over the file is what to change.
void show(const Contradiction& found, const Settings& settings, Report& report) {
  config::Diagnostic d = config::to_diagnostic(found.error);
  if (found.is_warning) d.severity = config::Severity::kWarning;
  const auto is_over = [&](const std::string& key) {
    const config::Span span = settings.span(key);
    return span.known() && !report.sources.is_file(span.file);
  };
  for (const auto& [key, help] : found.nearest)
    if (is_over(key)) d.help = help;
  for (const Side& side : found.sides) {
    auto set = std::ranges::find_if(side.keys, is_over);
    if (set == side.keys.end())
      set = std::ranges::find_if(side.keys,
                                 [&](const std::string& key) { return settings.is_set(key); });
    const std::string& key = set == side.keys.end() ? side.keys.front() : *set;
    const std::string text = key == side.keys.front() ? side.text : side.elsewhere + side.text;
    const config::Span span = settings.span(key);
    if (!span.known())
      d.notes.push_back(join_parts("`", key, "` is not set: ", text));
    else if (!d.primary.span.known())
      d.primary = {span, text};
    else if (is_over(key) && report.sources.is_file(d.primary.span.file))
      d.secondary.push_back(std::exchange(d.primary, {span, text}));
    else
      d.secondary.push_back({span, text});
  }
  report.add(std::move(d));
}

// What the other degrees leave of the cluster. False when dp cannot be told, after saying why.
bool fill_dp(const Settings& settings, Request& asked, Report& report) {
  if (settings.is_set("layout.dp")) return true;
  if (asked.cluster == nullptr) return !settings.is_set("cluster.name");
  mesh::Degrees& d = *asked.degrees;
  const auto left = data_degree(d, *asked.cluster);
  // Beyond what can be counted, the rules will say so.
  if (!left.ok() && left.error().code == Code::kDegreesDoNotMatchWorld)
    show({left.error(),
          {{{"layout.tp", "layout.pp", "layout.cp"}, counted(d.tp * d.cp * d.pp, "rank")},
           {{"cluster.name"}, counted(asked.cluster->count, "device")}}},
         settings, report);
  if (left.ok()) d.dp = *left;
  return left.ok();
}

void check_warmup(const Settings& settings, Report& report) {
  const auto rise = settings.integer("train.warmup");
  const auto steps = settings.integer("train.steps");
  if (!rise || !steps || *rise <= *steps) return;
  show({.error = {Code::kConflict,
                  join_parts("warmup = ", *rise, " is longer than the run of ", *steps,
                             " steps: the learning rate never reaches its peak"),
                  "make the warmup shorter or the run longer"},
        .sides = {{{"train.warmup"}, join_parts(*rise, " steps of warmup")},
                  {{"train.steps"}, join_parts(*steps, " steps in all")}},
        .is_warning = true},
       settings, report);
}

// Settings of the learning rate that contradict each other, or that nothing would read.
void check_decay(const Settings& settings, Report& report) {
  const auto name = settings.text("train.lr_decay");
  const auto peak = settings.real("train.lr"), end = settings.real("train.min_lr");
  const auto fall = settings.integer("train.decay_steps"), steps = settings.integer("train.steps");
  const auto rise = settings.integer("train.warmup");
  if (!name || !peak || !end || !fall || !steps || !rise) return;
  const Decay decay = *parse_decay(*name);
  const Side by = {{"train.lr_decay"}, join_parts("lr_decay = \"", *name, "\"")};
  const auto refuse = [&](std::string message, std::string help, std::vector<Side> sides) {
    show({{Code::kConflict, std::move(message), std::move(help)}, std::move(sides)}, settings,
         report);
  };
  if (*end > *peak)
    refuse(join_parts("min_lr = ", *end, " is above lr = ", *peak),
           join_parts("give min_lr from 0 to ", *peak),
           {{{"train.min_lr"}, "the end"}, {{"train.lr"}, "the peak"}});
  if (decay == Decay::kConstant && *end > 0)
    refuse(join_parts("min_lr = ", *end, " is never reached with lr_decay = \"constant\""),
           "leave min_lr out, or choose lr_decay = \"linear\", \"cosine\" or \"wsd\"",
           {{{"train.min_lr"}, "the end of a fall"}, by});
  if (decay != Decay::kWsd && *fall > 0)
    refuse(join_parts("decay_steps = ", *fall, " has no meaning with lr_decay = \"", *name, "\""),
           "leave decay_steps out, or choose lr_decay = \"wsd\"",
           {{{"train.decay_steps"}, "steps of a fall at the end"}, by});
  if (decay == Decay::kWsd && (*fall < 1 || *fall > *steps - *rise))
    refuse(join_parts("lr_decay = \"wsd\" falls over the last decay_steps = ", *fall, " of ",
                      *steps, " steps, ", *rise, " of them warmup"),
           join_parts("give decay_steps from 1 to ", std::max<std::int64_t>(1, *steps - *rise)),
           {{{"train.decay_steps"}, join_parts(*fall, " steps")}, by});
}

void check_noise(const Settings& settings, const Request& asked, const Batch& batch,
                 Report& report) {
  const auto steps = settings.integer("train.noise_scale");
  if (!steps || asked.model == nullptr || batch.global_batch < 1 || batch.microbatch < 1) return;
  for (const Contradiction& found : against_noise_scale(*steps, *asked.model, batch))
    show(found, settings, report);
}

void check_evaluation(const Settings& settings, const Request& asked, const Batch& batch,
                      Report& report) {
  const auto interval = settings.integer("train.eval_interval");
  const auto samples = settings.integer("train.eval_samples");
  if (!interval || !samples) return;
  if (*interval == 0)
    return show(
        {{Code::kConflict,
          join_parts("eval_samples = ", *samples, " is never looked at with eval_interval = 0"),
          "set eval_interval, or leave eval_samples out"},
         {{{"train.eval_samples"}, "of an evaluation"},
          {{"train.eval_interval"}, "there is none"}}},
        settings, report);
  if (!asked.dp_is_known || !asked.degrees || batch.microbatch < 1) return;
  for (const Contradiction& found : against_evaluation(*samples, asked.degrees->dp, batch))
    show(found, settings, report);
}

}  // namespace

void apply_rules(const Settings& settings, Request& asked, Report& report) {
  check_warmup(settings, report);
  check_decay(settings, report);
  for (const Contradiction& found : data_contradictions(settings)) show(found, settings, report);
  asked.dp_is_known = asked.degrees && fill_dp(settings, asked, report);
  for (const Contradiction& found : contradictions(asked)) show(found, settings, report);
  const Batch batch = {asked.seq.value_or(0), asked.global_batch.value_or(0),
                       asked.microbatch.value_or(0), asked.ramp};
  check_noise(settings, asked, batch, report);
  check_evaluation(settings, asked, batch, report);
}

}  // namespace lockstep::spec
