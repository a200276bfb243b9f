// lockstep cluster: what a device and the networks of a cluster can do, and how far to trust it.
#include <ostream>
#include <string>

#include "cli/cluster/cluster_json.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/cluster.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/config/fields.h"

namespace lockstep::cli {
namespace {

using cluster::Figure;
using cluster::Origin;

// "3.35 TB/s": four digits and a decimal prefix; of memory, unit "iB", a binary one: "80 GiB".
std::string metric(double value, const std::string& unit) {
  const double base = unit == "iB" ? 1024 : 1000;
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  std::size_t step = 0;
  for (; value >= base - 0.05 && step + 1 < std::size(kPrefixes); ++step) value /= base;
  return strf("%.4g %s%s", value, kPrefixes[step], unit.c_str());
}

// Figures as text, remembering which footnotes they need.
class Figures {
 public:
  std::string text(const Figure& figure, const char* unit) {
    return figure.known() ? metric(figure.value, unit) + mark(figure) : "-";
  }
  // A number alone, for a column whose title has the unit; marks stand in a column of their own.
  std::string number(const Figure& figure, double unit) {
    if (!figure.known()) return "- ";
    const std::string marked = mark(figure);
    return strf("%.4g", figure.value / unit) + (marked.empty() ? " " : marked);
  }
  std::string latency(const Figure& figure) {
    return figure.known() ? to_text(Seconds{figure.value}) + mark(figure) : "-";
  }
  std::string footnotes() const {
    return std::string(recalled_ || uncalibrated_ ? "\n" : "") +
           (recalled_ ? "* recalled, not checked against a source\n" : "") +
           (uncalibrated_ ? "? placeholder of the right order, not measured\n" : "");
  }

 private:
  std::string mark(const Figure& figure) {
    recalled_ |= figure.origin == Origin::kRecalled;
    uncalibrated_ |= figure.origin == Origin::kUncalibrated;
    return figure.origin == Origin::kRecalled       ? "*"
           : figure.origin == Origin::kUncalibrated ? "?"
                                                    : "";
  }
  bool recalled_ = false;
  bool uncalibrated_ = false;
};

void print_card(std::ostream& out, const cluster::Cluster& c) {
  Figures figures;
  const cluster::DeviceType& d = c.device;
  out << c.name << ": " << with_commas(c.count) << " x " << d.title << "\n\n";
  out << "memory        " << figures.text(d.memory, "iB") << " at "
      << figures.text(d.memory_bytes_per_s, "B/s") << ", "
      << metric(d.memory.value * static_cast<double>(c.count), "iB") << " in all\n";
  const auto peaks = [&](const char* title, const Figure& bf16, const Figure& fp8,
                         const Figure& f32, const Figure& f16) {
    std::string line;
    for (const auto& [figure, name] :
         {std::pair{bf16, "bf16"}, {f16, "f16"}, {fp8, "fp8"}, {f32, "f32"}})
      if (figure.known())
        line += (line.empty() ? "" : ", ") + figures.text(figure, "FLOP/s") + " " + name;
    if (!line.empty()) out << title << line << "\n";
  };
  peaks("peak          ", d.peak_bf16, d.peak_fp8, d.peak_f32, d.peak_f16);
  peaks("best matmul   ", d.largest_matmul_bf16, d.largest_matmul_fp8, {}, {});
  out << "\n";
  Rows rows = {{"tier", "devices", "kind", "speed", "latency", ""}};
  for (const cluster::Tier& tier : c.tiers)
    rows.push_back(
        {tier.name, with_commas(tier.size), std::string(to_text(tier.kind)),
         figures.text(tier.bytes_per_s, "B/s"), figures.latency(tier.latency_s),
         tier.oversubscription > 1 ? strf("oversubscribed %.3g to 1", tier.oversubscription) : ""});
  print_table(out, rows, "lrlrrl");
  out << "\nSpeeds are per device in one direction; on a torus per link.\n";
  out << figures.footnotes();
}

void print_list(std::ostream& out) {
  constexpr double kGiga = 1e9, kTera = 1e12;
  Figures figures;
  Rows rows = {{"device", "memory ", "16-bit ", "fp8 ", "node", "scale-up ", "network "},
               {"", "GiB ", "TFLOP/s ", "TFLOP/s ", "", "GB/s ", "GB/s "}};
  for (const cluster::CatalogRow& row : cluster::catalog())
    rows.push_back(
        {row.device.name, figures.number(row.device.memory, kGib),
         figures.number(row.device.peak_bf16.known() ? row.device.peak_bf16 : row.device.peak_f16,
                        kTera),
         figures.number(row.device.peak_fp8, kTera),
         row.torus_axes > 0 ? strf("%dD torus", row.torus_axes) : strf("%d", row.node_size),
         figures.number(row.scale_up_bytes_per_s, kGiga),
         figures.number(row.network_bytes_per_s, kGiga)});
  print_table(out, rows, "lrrrrrr");
  out << "\nSpeeds are per device in one direction; on a torus per link.\n"
      << "16-bit is bf16, or f16 where there is no bf16 (v100).\n"
      << figures.footnotes();
}

Json figure_json(const Figure& figure) {
  if (!figure.known()) return nullptr;
  return Json::object({{"value", figure.value}, {"origin", to_text(figure.origin)}});
}

Json device_json(const cluster::DeviceType& d) {
  return Json::object({{"name", d.name},
                       {"title", d.title},
                       {"memory_bytes", figure_json(d.memory)},
                       {"memory_bytes_per_s", figure_json(d.memory_bytes_per_s)},
                       {"peak_f32_flops", figure_json(d.peak_f32)},
                       {"peak_bf16_flops", figure_json(d.peak_bf16)},
                       {"peak_f16_flops", figure_json(d.peak_f16)},
                       {"peak_fp8_flops", figure_json(d.peak_fp8)},
                       {"largest_matmul_bf16_flops", figure_json(d.largest_matmul_bf16)},
                       {"largest_matmul_fp8_flops", figure_json(d.largest_matmul_fp8)}});
}

ExitCode list_devices(Output& output) {
  if (!output.json) return print_list(output.out), ExitCode::kOk;
  return print_json(output,
                    Json::object({{"schema", "lockstep.cluster-list/1"},
                                  {"devices", Json::list(cluster::catalog(), [](const auto& row) {
                                     return device_json(row.device);
                                   })}}));
}

ExitCode list_cluster_fields(Output& output) {
  const config::FieldTable& file = cluster::cluster_fields();
  const config::FieldTable& tier = cluster::tier_fields();
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.cluster-fields/1"},
                                            {"cluster", config::fields_json(file)},
                                            {"tier", config::fields_json(tier)}}));
  output.out << config::fields_text(file, output.width) << "\nIn each [[tier]]:\n\n"
             << config::fields_text(tier, output.width);
  return ExitCode::kOk;
}

Result<ExitCode> run_cluster(const Args& args, Output& output) {
  LS_TRY(check_alone(args, {"fields", "CLUSTER"}));
  if (args.flag("list")) return list_devices(output);
  if (args.flag("fields")) return list_cluster_fields(output);
  if (!args.has("CLUSTER"))
    return Error{Code::kBadOptionValue, "no cluster was named",
                 "name one, for example `lockstep cluster h100:64`; `lockstep "
                 "cluster --list` shows the known devices"};
  const std::string text = args.text("CLUSTER");
  config::Report report;
  const auto found = cluster::find_cluster(text, report);
  if (!found) return fail(output, report, text);
  if (output.json) return print_json(output, cluster_json(*found));
  print_card(output.out, *found);
  return ExitCode::kOk;
}

}  // namespace

Json cluster_json(const cluster::Cluster& c) {
  return Json::object({{"schema", "lockstep.cluster/1"},
                       {"name", c.name},
                       {"devices", c.count},
                       {"device", device_json(c.device)},
                       {"tiers", Json::list(c.tiers, [](const cluster::Tier& tier) {
                          return Json::object({{"name", tier.name},
                                               {"devices", tier.size},
                                               {"kind", to_text(tier.kind)},
                                               {"bytes_per_s", figure_json(tier.bytes_per_s)},
                                               {"latency_s", figure_json(tier.latency_s)},
                                               {"oversubscription", tier.oversubscription}});
                        })}});
}

Verb cluster_verb() {
  return {.name = "cluster",
          .summary = "Memory, speed and networks of a cluster",
          .description =
              "A cluster is a known device with a number (h100:16384), a TPU torus "
              "(tpu-v5p:8x8x16), or a file that describes your own. Marks tell which figures were "
              "printed by a source and which were not.",
          .examples = {{"lockstep cluster h100:64", "64 H100 in the usual nodes of eight"},
                       {"lockstep cluster gb200:128/64", "64 devices of each NVLink domain"},
                       {"lockstep cluster --list", "the known devices"}},
          .options = {flag("list", "List the known devices"),
                      flag("fields", "List the keys of a cluster file")},
          .positionals = {{.name = "CLUSTER", .help = "Name or file", .required = false}},
          .run = run_cluster};
}

}  // namespace lockstep::cli
