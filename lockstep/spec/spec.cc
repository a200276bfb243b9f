#include "lockstep/spec/spec.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/model/catalog.h"
#include "lockstep/model/user_model.h"
#include "lockstep/spec/data_fields.h"
#include "lockstep/spec/train_rules.h"

namespace lockstep::spec {
namespace {

using config::Report;
using config::Settings;

// What `parse` makes of the text at `path`; nothing when it was refused, here or before.
template <class T>
std::optional<T> parsed(const Settings& settings, const char* path,
                        Result<T> (*parse)(std::string_view), Report& report) {
  const auto text = settings.text(path);
  if (!text) return std::nullopt;
  const Result<T> made = parse(*text);
  if (made.ok()) return *made;
  report.add(made.error(), settings.span(path));
  return std::nullopt;
}

// A file that a run file names lies beside it. A `:` is that of a cluster, as in h100:64/4.
std::string found_at(const std::string& name, const config::Span& from, const Report& report) {
  const bool is_file =
      config::looks_like_a_file(name) &&
      (name.find(':') == std::string::npos || name.ends_with(".toml") || name.ends_with(".json"));
  return is_file ? report.sources.beside(from, name) : name;
}

// Takes over what was found while reading something that `from` names, apart from the first
// `known`, which `report` has already.
void take_over(const Report& own, const config::Span& from, Report& report, std::size_t known = 0) {
  report.sources.merge(own.sources);
  for (config::Diagnostic diagnostic : own.diagnostics().subspan(known)) {
    if (!diagnostic.primary.span.known()) diagnostic.primary.span = from;
    report.add(std::move(diagnostic));
  }
}

void report_missing_model(const config::Value& root, Report& report) {
  // A misspelt table may be the very one that seems to be missing; it has been reported.
  for (const config::Entry& entry : root.entries)
    if (!run_fields().is_section(entry.key)) return;
  config::Diagnostic diagnostic = config::to_diagnostic(
      {Code::kMissingKey, "`model.name` is missing",
       "add name = \"...\" to [model]: `lockstep model --list` shows the known models"});
  if (const config::Entry* model = root.find("model"))
    diagnostic.primary = {model->key_span, "`name` is not set here"};
  report.add(std::move(diagnostic));
}

// Whether the table describes a model of its own, of which `name` is only the title.
bool describes(const config::Value& table) {
  return table.find("like") || table.find("hidden") || table.find("heads") || table.find("vocab");
}

// A name alone is a known model or a model file; with more keys the table describes a model, and a
// known name is what it is like.
std::optional<model::ModelConfig> read_model(const config::Value& root, Report& report) {
  const config::Entry* section = root.find("model");
  if (section != nullptr && section->value.kind != config::ValueKind::kTable) return std::nullopt;
  if (section == nullptr || section->value.entries.empty()) {
    report_missing_model(root, report);
    return std::nullopt;
  }
  config::Value table = section->value;
  const config::Entry* name = table.find("name");
  if (name != nullptr && name->value.kind != config::ValueKind::kString) return std::nullopt;
  Report own;
  if (name != nullptr && table.entries.size() == 1) {
    auto model = model::find_model(found_at(name->value.text, name->value.span, report), own);
    take_over(own, name->value.span, report);
    return model;
  }
  const config::Span from = name == nullptr ? section->key_span : name->value.span;
  if (name != nullptr && table.find("like") == nullptr) {
    const Result<model::CatalogRow> row = model::find(name->value.text);
    if (!row.ok() && !describes(table)) return report.add(row.error(), from), std::nullopt;
    if (row.ok()) table.entries.push_back({"like", name->key_span, name->value});
  }
  Report already_reported;
  config::check(section->value, model::model_fields(), already_reported);
  auto model = model::model_from(table, own, "model.");
  take_over(own, section->key_span, report, already_reported.diagnostics().size());
  return model;
}

std::optional<mesh::Degrees> read_degrees(const Settings& settings) {
  const auto tp = settings.integer("layout.tp");
  const auto cp = settings.integer("layout.cp");
  const auto pp = settings.integer("layout.pp");
  const auto ep = settings.integer("layout.ep");
  const auto etp = settings.integer("layout.etp");
  const auto dp = settings.integer("layout.dp");
  const auto dp_shard = settings.integer("layout.dp_shard");
  const bool refused =
      (settings.is_set("layout.dp") && !dp) || (settings.is_set("layout.dp_shard") && !dp_shard);
  if (!tp || !cp || !pp || !ep || !etp || refused) return std::nullopt;
  return mesh::Degrees{.tp = *tp,
                       .cp = *cp,
                       .pp = *pp,
                       .dp = dp.value_or(1),
                       .dp_shard = dp_shard,
                       .ep = *ep,
                       .etp = *etp};
}

std::optional<cluster::Cluster> read_cluster(const Settings& settings, Report& report) {
  const auto name = settings.text("cluster.name");
  if (!name) return std::nullopt;
  const config::Span span = settings.span("cluster.name");
  Report own;
  auto found = cluster::find_cluster(found_at(*name, span, report), own);
  take_over(own, span, report);
  return found;
}

// What is known of the request: a part is absent when a mistake in it has been reported.
Request read_request(const Settings& settings, const std::optional<model::ModelConfig>& model,
                     const std::optional<cluster::Cluster>& cluster) {
  const auto small = [&](const char* key) {
    const auto value = settings.integer(key);
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  const auto context = settings.text("layout.cp_comm_type");
  return {.model = model ? &*model : nullptr,
          .cluster = cluster ? &*cluster : nullptr,
          .degrees = read_degrees(settings),
          .context = context ? model::parse_cp_method(*context) : std::nullopt,
          .sp = settings.boolean("layout.sp"),
          .zero = small("layout.zero"),
          .schedule = settings.text("layout.schedule"),
          .chunks = small("layout.vpp"),
          .resident = small("layout.resident"),
          .prefetch = small("layout.prefetch"),
          .seq = settings.integer("batch.seq"),
          .global_batch = settings.integer("batch.global_batch"),
          .microbatch = settings.integer("batch.microbatch"),
          .ramp = {settings.integer("batch.ramp_start").value_or(0),
                   settings.integer("batch.ramp_increment").value_or(0),
                   settings.integer("batch.ramp_samples").value_or(0)}};
}

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
      d.secondary.emplace_back(span, text);
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

void check_expert_parallelism(const Settings& settings, const Request& asked, Report& report) {
  const auto noise = settings.integer("train.noise_scale");
  if (!asked.degrees || !noise || asked.model == nullptr) return;
  for (const Contradiction& found :
       against_expert_parallelism(*asked.degrees, *noise, *asked.model))
    show(found, settings, report);
}

void check_routers(const Settings& settings, const Request& asked, Report& report) {
  const auto aux = settings.real("train.moe_aux_loss_coeff"),
             z = settings.real("train.moe_z_loss_coeff");
  if (!aux || !z || asked.model == nullptr) return;
  for (const Contradiction& found : against_router_losses(*aux, *z, *asked.model))
    show(found, settings, report);
  if (settings.is_set("train.moe_bias_update_rate") && !asked.model->moe.router_bias)
    show({{Code::kConflict, "moe_bias_update_rate is given, but the model has no selection bias",
           "set model.moe.router_bias = true, or leave moe_bias_update_rate out"},
          {{{"train.moe_bias_update_rate"}, "is of a router's bias"},
           {{"model.moe.router_bias", "model.name"}, "has none"}}},
         settings, report);
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

// Fills in dp when it was left out, then reports every rule that does not hold. Of `asked` a part
// is absent when a mistake in it has already been reported.
void apply_rules(const Settings& settings, Request& asked, Report& report) {
  check_warmup(settings, report);
  check_decay(settings, report);
  for (const Contradiction& found : data_contradictions(settings)) show(found, settings, report);
  asked.dp_is_known = asked.degrees && fill_dp(settings, asked, report);
  for (const Contradiction& found : contradictions(asked)) show(found, settings, report);
  const Batch batch = {asked.seq.value_or(0), asked.global_batch.value_or(0),
                       asked.microbatch.value_or(0), asked.ramp};
  check_noise(settings, asked, batch, report);
  check_routers(settings, asked, report);
  check_expert_parallelism(settings, asked, report);
  check_evaluation(settings, asked, batch, report);
}

// REQUIRES: nothing was refused.
Spec assemble(const Settings& settings, const Request& asked, const mesh::Order& order) {
  Spec spec;
  spec.model = *asked.model;
  if (asked.cluster != nullptr) spec.cluster = *asked.cluster;
  const auto reduce = settings.text("layout.reduce");
  spec.layout = {.degrees = *asked.degrees,
                 .order = order,
                 .context = *asked.context,
                 .sp = *asked.sp,
                 .zero = *asked.zero,
                 .schedule = *asked.schedule,
                 .chunks = *asked.chunks,
                 .reduce = reduce ? *parse_reduce(*reduce) : default_reduce(*asked.zero),
                 .recompute = asked.recompute,
                 .resident = asked.resident,
                 .prefetch = asked.prefetch,
                 .layers = asked.layers};
  spec.batch = {*asked.seq, *asked.global_batch, *asked.microbatch, asked.ramp};
  spec.device = kDeviceKinds.find(*settings.text("device.kind")).value();
  spec.train = {
      .steps = *settings.integer("train.steps"),
      .lr = {.peak = *settings.real("train.lr"),
             .end = *settings.real("train.min_lr"),
             .warmup = *settings.integer("train.warmup"),
             .decay = *parse_decay(*settings.text("train.lr_decay")),
             .decay_steps = *settings.integer("train.decay_steps")},
      .weight_decay = *settings.real("train.weight_decay"),
      .clip = *settings.real("train.clip"),
      .seed = *settings.integer("train.seed"),
      .dtype = *parse_dtype(*settings.text("train.dtype")),
      .decay_embeddings = *settings.boolean("train.decay_embeddings"),
      .beta1 = *settings.real("train.beta1"),
      .beta2 = *settings.real("train.beta2"),
      .eps = *settings.real("train.eps"),
      .head_chunk = *settings.integer("train.head_chunk"),
      .moe_aux_loss_coeff = *settings.real("train.moe_aux_loss_coeff"),
      .moe_z_loss_coeff = *settings.real("train.moe_z_loss_coeff"),
      .moe_bias_update_rate = *settings.real("train.moe_bias_update_rate"),
      .tp_overlap = *settings.boolean("train.tp_overlap"),
      .threads = static_cast<int>(*settings.integer("train.threads")),
      .noise_scale = *settings.integer("train.noise_scale"),
      .check_interval = *settings.integer("train.check_interval"),
      .on_nonfinite = *settings.text("train.on_nonfinite") == to_text(OnNonfinite::kSkip)
                          ? OnNonfinite::kSkip
                          : OnNonfinite::kStop,
      .eval_interval = *settings.integer("train.eval_interval"),
      .eval_samples = settings.integer("train.eval_samples").value_or(spec.batch.global_batch),
      .op_deadline = {*settings.real("train.op_deadline")}};
  return spec;
}

}  // namespace

std::string_view to_text(OnNonfinite policy) {
  return policy == OnNonfinite::kSkip ? "skip" : "stop";
}

std::int64_t Spec::world() const {
  const mesh::Degrees& d = layout.degrees;
  return d.tp * d.cp * d.pp * d.dp;
}

std::int64_t Spec::num_microbatches() const { return spec::num_microbatches(layout, batch); }

std::string to_text(const Spec& spec) {
  const mesh::Degrees& d = spec.layout.degrees;
  const std::string where = spec.cluster ? spec.cluster->name : counted(spec.world(), "rank");
  const std::string model = spec.model.name.empty() ? "a model of its own" : spec.model.name;
  std::string text =
      join_parts(model, " on ", where, ": tp ", with_commas(d.tp), " x cp ", with_commas(d.cp),
                 " x pp ", with_commas(d.pp), " x dp ", with_commas(d.dp));
  if (d.ep > 1 || d.etp > 1)
    text += join_parts(", ep ", with_commas(d.ep), " x etp ", with_commas(d.etp));
  return text +
         join_parts(", zero ", spec.layout.zero, "; ", counted(spec.batch.global_batch, "sequence"),
                    " of ", counted(spec.batch.seq, "token"), " a step, ",
                    counted(spec.num_microbatches(), "microbatch"), " per data-parallel rank");
}

std::optional<Spec> read_spec(const config::Document& document, Report& report) {
  const int errors_before = report.num_errors();
  config::check(document, run_fields(), report);
  const Settings settings(document.root(), run_fields());
  const auto model = read_model(document.root(), report);
  const auto cluster = read_cluster(settings, report);
  Request asked = read_request(settings, model, cluster);
  const auto order = parsed(settings, "layout.order", mesh::Order::parse, report);
  asked.recompute =
      parsed(settings, "layout.recompute", parse_recompute, report).value_or(Recompute());
  asked.layers =
      parsed(settings, "layout.layers", parse_layers, report).value_or(std::vector<int>());
  apply_rules(settings, asked, report);
  if (report.num_errors() > errors_before) return std::nullopt;
  Spec spec = assemble(settings, asked, *order);
  spec.data = read_corpus(settings, report.sources);
  return spec;
}

}  // namespace lockstep::spec
