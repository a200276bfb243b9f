#include "lockstep/backtest/run_machine.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "lockstep/base/divides.h"
#include "lockstep/cluster/catalog.h"

namespace lockstep::backtest {
namespace {

std::string plain_name(std::string_view text) {
  std::string plain;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

// The catalogue row whose name, without punctuation, the text begins with; the longest such.
const cluster::CatalogRow* device_row(const PublishedRun& run) {
  const std::string wanted = plain_name(run.text("gpu"));
  const double memory = run.number("gpu_mem_gb").value_or(0);
  const cluster::CatalogRow* best = nullptr;
  std::size_t length = 0;
  for (const cluster::CatalogRow& row : cluster::catalog()) {
    const std::string name = plain_name(row.device.name);
    const std::size_t dash = row.device.name.find('-');
    const bool sized = dash != std::string::npos && (name == "a10040" || name == "h10096");
    const std::string base = sized ? plain_name(row.device.name.substr(0, dash)) : name;
    if (!wanted.starts_with(base)) continue;
    if (sized && std::abs(memory * kGib - row.device.memory.value) > 2 * kGib) continue;
    const std::size_t score = base.size() + (sized ? 1 : 0);
    if (score > length) best = &row, length = score;
  }
  return best;
}

// Devices joined by the scale-up network: a whole rack of GB200 where the source says so.
double domain_size(const PublishedRun& run, const cluster::CatalogRow& row, double devices) {
  double node = run.number("gpus_per_node").value_or(row.node_size > 0 ? row.node_size : devices);
  if (run.text("interconnect_intra").find("NVL72") != std::string::npos) node = 72;
  if (row.torus_axes > 0) return devices;
  node = std::clamp(node, 1.0, devices);
  while (!divides(node, devices)) node -= 1;
  return node;
}

}  // namespace

double network_rate(const std::string& text, double devices_per_node) {
  const std::size_t unit = std::min(text.find("Gb/s"), text.find("Gbps"));
  if (unit == std::string::npos) return 0;
  const auto number_before = [&](std::size_t& end) {
    while (end > 0 && text[end - 1] == ' ') --end;
    std::size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
    double value = 0;
    std::from_chars(text.data() + begin, text.data() + end, value);
    end = begin;
    return value;
  };
  std::size_t at = unit;
  double gbits = number_before(at);
  double ports = 1;
  if (at > 0 && text[at - 1] == 'x') ports = number_before(--at);
  gbits *= std::max(1.0, ports);
  const bool per_device =
      text.find("per GPU") != std::string::npos || text.find("per chip") != std::string::npos;
  const bool per_node =
      text.find("per node") != std::string::npos || (!per_device && (ports > 1 || gbits >= 800));
  return gbits * 1e9 / 8 / (per_node ? std::max(1.0, devices_per_node) : 1);
}

Result<cluster::Cluster> machine_of(const PublishedRun& run, int devices) {
  const cluster::CatalogRow* row = device_row(run);
  if (row == nullptr)
    return Error{Code::kRowNotPriced, "gpu is `" + run.text("gpu") + "`, which no catalogue row is",
                 ""};
  cluster::Cluster made;
  made.name = run.text("gpu");
  made.device = row->device;
  made.count = devices;
  if (const auto memory = run.number("gpu_mem_gb"); memory && *memory > 0)
    made.device.memory = {*memory * kGib, cluster::Origin::kPublished};
  const double node = domain_size(run, *row, devices);
  made.tiers.push_back({std::string(row->scale_up), static_cast<std::int64_t>(node),
                        cluster::TierKind::kSwitch, row->scale_up_bytes_per_s,
                        row->scale_up_latency_s});
  if (node >= devices) return made;
  const double ports = run.number("gpus_per_node").value_or(8);
  const double printed = network_rate(run.text("interconnect_inter"), ports);
  cluster::Figure network = row->network_bytes_per_s;
  if (printed > 0) network = {printed, cluster::Origin::kPublished};
  if (!network.known()) network = {12.5e9, cluster::Origin::kUncalibrated};
  made.tiers.push_back({"network", made.count, cluster::TierKind::kSwitch, network, {14e-6}});
  return made;
}

}  // namespace lockstep::backtest
