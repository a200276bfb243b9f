#include "lockstep/cluster/cluster_file.h"

#include <utility>
#include <vector>

#include "lockstep/cluster/catalog.h"

namespace lockstep::cluster {
namespace {

using config::Field;
using config::FieldType;

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) names.push_back(row.device.name);
  return names;
}

Field positive(std::string path, std::string unit, std::string doc, bool required = false) {
  return {.path = std::move(path),
          .type = FieldType::kReal,
          .doc = std::move(doc),
          .required = required,
          .unit = std::move(unit),
          .min = 0,
          .above_min = true};
}

void replace(Figure& figure, const std::optional<double>& value, double unit) {
  if (value) figure = {*value * unit, Origin::kUser};
}

DeviceType read_device(const config::Settings& settings) {
  DeviceType device;
  const auto base = settings.text("device.base");
  for (const CatalogRow& row : catalog())
    if (base == row.device.name) device = row.device;
  if (const auto name = settings.text("device.name")) device.name = device.title = *name;
  if (const auto memory = settings.bytes("device.memory"))
    device.memory = {static_cast<double>(memory->value), Origin::kUser};
  replace(device.memory_bytes_per_s, settings.real("device.memory_bandwidth"), kGiga);
  replace(device.peak_f32, settings.real("device.peak_f32"), kTera);
  replace(device.peak_bf16, settings.real("device.peak_bf16"), kTera);
  replace(device.peak_fp8, settings.real("device.peak_fp8"), kTera);
  replace(device.watts, settings.real("device.power"), 1);
  return device;
}

Tier read_tier(const config::Value& value) {
  const config::Settings settings(value, tier_fields());
  Tier tier;
  tier.name = settings.text("name").value_or("");
  tier.size = settings.integer("devices").value_or(0);
  const auto kind = settings.text("kind");
  for (const TierKind candidate : {TierKind::kSwitch, TierKind::kRing, TierKind::kLine})
    if (kind == to_text(candidate)) tier.kind = candidate;
  replace(tier.bytes_per_s, settings.real("bandwidth"), kGiga);
  replace(tier.latency_s, settings.real("latency"), kMicro);
  tier.oversubscription = settings.real("oversubscription").value_or(1);
  return tier;
}

config::Span span_of(const config::Entry* entry) {
  return entry != nullptr ? entry->key_span : config::Span{};
}

// h100:64/4 is a name in spite of its slash.
bool is_file(std::string_view text) {
  if (text.ends_with(".toml") || text.ends_with(".json")) return true;
  return text.find(':') == std::string_view::npos && config::looks_like_a_file(text);
}

}  // namespace

const config::FieldTable& cluster_fields() {
  static const config::FieldTable table(
      "cluster",
      {{.path = "name", .doc = "What to call the cluster.", .initial = "\"cluster\""},
       {.path = "devices",
        .type = FieldType::kInt,
        .doc = "Number of devices in the whole cluster.",
        .required = true,
        .min = 1,
        .max = static_cast<double>(kMaxDevices)},
       {.path = "device.base",
        .type = FieldType::kChoice,
        .doc = "Catalogue row whose figures are used where none is given here.",
        .choices = device_names()},
       {.path = "device.name", .doc = "What to call the device; the base's name by default."},
       {.path = "device.memory",
        .type = FieldType::kBytes,
        .doc = "Memory of one device; what a data sheet calls 80 GB is 80GiB.",
        .min = 1},
       positive("device.memory_bandwidth", "GB/s", "Speed of that memory."),
       positive("device.peak_f32", "TFLOP/s", "Dense peak in f32."),
       positive("device.peak_bf16", "TFLOP/s", "Dense peak in bf16."),
       positive("device.peak_fp8", "TFLOP/s", "Dense peak in fp8."),
       positive("device.power", "W",
                "Power that it may draw, where that is not usual: rates of products follow its "
                "cube root."),
       {.path = "tier",
        .type = FieldType::kTables,
        .doc = "Levels of the network, innermost first; without any, the usual machine of the "
               "base."}});
  return table;
}

const config::FieldTable& tier_fields() {
  static const config::FieldTable table(
      "tier",
      {{.path = "name", .doc = "What to call the tier.", .required = true},
       {.path = "devices",
        .type = FieldType::kInt,
        .doc = "Devices inside one instance of the tier.",
        .required = true,
        .min = 1},
       {.path = "kind",
        .type = FieldType::kChoice,
        .doc = "How they are joined; a torus is one ring or line per axis.",
        .initial = "\"switch\"",
        .choices = {"switch", "ring", "line"}},
       positive("bandwidth", "GB/s", "Per device, one direction; on a ring or line per link.",
                /*required=*/true),
       {.path = "latency",
        .type = FieldType::kReal,
        .doc = "Per step of a ring algorithm.",
        .initial = "0.0",
        .unit = "us",
        .min = 0},
       {.path = "oversubscription",
        .type = FieldType::kReal,
        .doc = "Divides the bandwidth when all devices talk at once.",
        .initial = "1.0",
        .min = 1}});
  return table;
}

std::optional<Cluster> read_cluster(const config::Document& document, config::Report& report) {
  const int errors_before = report.num_errors();
  config::check(document, cluster_fields(), report);
  const config::Entry* tiers = document.find("tier");
  const bool has_tiers = tiers != nullptr && tiers->value.kind == config::ValueKind::kList;
  if (has_tiers)
    for (std::size_t i = 0; i < tiers->value.items.size(); ++i)
      config::check(tiers->value.items[i], tier_fields(), report, strf("tier[%zu].", i));
  if (report.num_errors() > errors_before) return std::nullopt;

  const config::Settings settings(document.root(), cluster_fields());
  Cluster cluster = {
      *settings.text("name"), read_device(settings), *settings.integer("devices"), {}};
  const auto base = settings.text("device.base");
  if (has_tiers) {
    for (const config::Value& item : tiers->value.items) cluster.tiers.push_back(read_tier(item));
  } else if (base) {
    const auto usual = cluster_from_name(*base + ":" + std::to_string(cluster.count));
    if (!usual.ok())
      return report.add(usual.error(), span_of(document.find("devices"))), std::nullopt;
    cluster.tiers = usual->tiers;
  }
  auto result = validated(std::move(cluster));
  if (!result.ok()) return report.add(result.error(), span_of(tiers)), std::nullopt;
  return std::move(*result);
}

std::optional<Cluster> find_cluster(const std::string& text, config::Report& report) {
  if (!is_file(text)) {
    auto named = cluster_from_name(text);
    if (named.ok()) return std::move(*named);
    if (!config::is_there(text)) return report.add(named.error()), std::nullopt;
  }
  const auto document = config::load_document(text, report);
  return document ? read_cluster(*document, report) : std::nullopt;
}

}  // namespace lockstep::cluster
