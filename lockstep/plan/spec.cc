#include "lockstep/plan/spec.h"

#include <filesystem>
#include <string>
#include <utility>

#include "lockstep/arch/catalog.h"
#include "lockstep/arch/user_model.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/plan/rules.h"

namespace lockstep::plan {
namespace {

using config::Report;
using config::Settings;

void add_at(const config::Span& span, const Error& error, Report& report) {
  config::Diagnostic diagnostic = config::to_diagnostic(error);
  diagnostic.primary.span = span;
  report.add(std::move(diagnostic));
}

// A file that a run file names lies beside it.
std::string beside(const std::string& name, const config::Span& from, const Report& report) {
  const bool is_file = name.ends_with(".toml") || name.ends_with(".json");
  if (!is_file || !from.known() || !report.sources.is_file(from.file)) return name;
  return (std::filesystem::path(from.file).parent_path() / name).string();
}

// Takes over what was found while reading something that `from` names.
void take_over(const Report& own, const config::Span& from, Report& report) {
  report.sources.merge(own.sources);
  for (config::Diagnostic diagnostic : own.diagnostics()) {
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

// A name alone is a known model or a model file; with more keys the table describes a model, and a
// known name is what it is like.
std::optional<arch::ModelConfig> read_model(const config::Value& root, Report& report) {
  const config::Entry* section = root.find("model");
  if (section == nullptr || section->value.entries.empty()) {
    report_missing_model(root, report);
    return std::nullopt;
  }
  Report already_reported;
  config::check(section->value, arch::model_fields(), already_reported);
  if (!already_reported.ok()) return std::nullopt;
  config::Value table = section->value;
  const config::Entry* name = section->value.find("name");
  Report own;
  if (name == nullptr) {
    auto model = arch::model_from(table, own, "model.");
    take_over(own, section->key_span, report);
    return model;
  }
  if (table.entries.size() > 1) {
    if (table.find("like") == nullptr && arch::find(name->value.text).ok())
      table.entries.push_back({"like", name->key_span, name->value});
    auto model = arch::model_from(table, own, "model.");
    take_over(own, name->value.span, report);
    return model;
  }
  auto model = arch::find_model(beside(name->value.text, name->value.span, report), own);
  take_over(own, name->value.span, report);
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
  auto found = cluster::find_cluster(beside(*name, span, report), own);
  take_over(own, span, report);
  return found;
}

Spec assemble(const Draft& draft, mesh::Order order) {
  const Settings& settings = draft.settings;
  Spec spec;
  spec.model = *draft.model;
  spec.cluster = draft.cluster;
  spec.layout = {*draft.degrees, std::move(order), *settings.boolean("layout.sp"),
                 static_cast<int>(*settings.integer("layout.zero"))};
  spec.batch = {*settings.integer("batch.seq"), *settings.integer("batch.global_batch"),
                *settings.integer("batch.microbatch")};
  spec.train = {.steps = *settings.integer("train.steps"),
                .lr = *settings.real("train.lr"),
                .warmup = *settings.integer("train.warmup"),
                .weight_decay = *settings.real("train.weight_decay"),
                .clip = *settings.real("train.clip"),
                .seed = *settings.integer("train.seed"),
                .dtype = *parse_dtype(*settings.text("train.dtype"))};
  return spec;
}

}  // namespace

std::int64_t Spec::world() const {
  const mesh::Degrees& d = layout.degrees;
  return d.tp * d.cp * d.pp * d.dp;
}

std::int64_t Spec::num_microbatches() const {
  return batch.global_batch / layout.degrees.dp / batch.microbatch;
}

std::string to_text(const Spec& spec) {
  const mesh::Degrees& d = spec.layout.degrees;
  const std::string where = spec.cluster ? spec.cluster->name : join_parts(spec.world(), " ranks");
  std::string text = join_parts(spec.model.name, " on ", where, ": tp ", d.tp, " x cp ", d.cp,
                                " x pp ", d.pp, " x dp ", d.dp);
  if (d.ep > 1 || d.etp > 1) text += join_parts(", ep ", d.ep, " x etp ", d.etp);
  return text + join_parts(", zero ", spec.layout.zero, "; ", with_commas(spec.batch.global_batch),
                           " sequences of ", with_commas(spec.batch.seq), " tokens a step, ",
                           with_commas(spec.num_microbatches()), " microbatches each");
}

std::optional<Spec> read_spec(const config::Document& document, Report& report) {
  const int errors_before = report.num_errors();
  config::check(document, run_fields(), report);
  const Settings settings(document.root(), run_fields());
  Draft draft{.settings = settings,
              .model = read_model(document.root(), report),
              .cluster = read_cluster(settings, report),
              .degrees = read_degrees(settings)};
  mesh::Order order;
  if (const auto text = settings.text("layout.order")) {
    const Result<mesh::Order> parsed = mesh::Order::parse(*text);
    if (parsed.ok())
      order = *parsed;
    else
      add_at(settings.span("layout.order"), parsed.error(), report);
  }
  apply_rules(draft, report);
  if (report.num_errors() > errors_before) return std::nullopt;
  return assemble(draft, std::move(order));
}

}  // namespace lockstep::plan
