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

// "a100-40" is named by its memory: 40; 0 for others.
double named_memory(std::string_view name) {
  const std::size_t dash = name.find('-');
  double memory = 0;
  if (dash == std::string_view::npos) return 0;
  const auto read = std::from_chars(name.data() + dash + 1, name.data() + name.size(), memory);
  return read.ptr == name.data() + name.size() ? memory : 0;
}

// The catalogue row whose name, without punctuation, the text begins with; the longest such. Rows
// named by their memory are those of that memory alone.
const cluster::CatalogRow* device_row(const PublishedRun& run) {
  const std::string wanted = plain_name(run.text("gpu"));
  const double memory = run.number("gpu_mem_gb").value_or(0);
  const cluster::CatalogRow* best = nullptr;
  std::size_t length = 0;
  for (const cluster::CatalogRow& row : cluster::catalog()) {
    const double sized = named_memory(row.device.name);
    const std::string name =
        row.device.name.substr(0, sized > 0 ? row.device.name.find('-') : row.device.name.size());
    const std::string base = plain_name(name);
    if (!wanted.starts_with(base) || (sized > 0 && std::abs(memory - sized) >= 1)) continue;
    const std::size_t score = base.size() + (sized > 0 ? 1 : 0);
    if (score > length) best = &row, length = score;
  }
  return best;
}

// The number in front of these words, spaces and signs between words left out: 500 of "-500W"; 0
// where there is none.
double number_before(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return 0;
  std::size_t end = at;
  while (end > 0 && text[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 &&
         (std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '.'))
    --begin;
  double value = 0;
  std::from_chars(text.data() + begin, text.data() + end, value);
  return value;
}

// What a row says of its device besides the name: memory; power, as "500 W cap" in notes or "500W"
// in the name; bandwidth, as "HBM2e 2.4 TB/s".
Result<cluster::DeviceType> variant_of(const PublishedRun& run, cluster::DeviceType device) {
  const std::string &gpu = run.text("gpu"), &notes = run.text("notes");
  const auto replace = [&](cluster::Figure& figure, double said, double unit, const char* what,
                           double low, double high) -> Result<void> {
    const double usual = figure.value / unit;
    if (!(said >= low * usual && said <= high * usual))
      return Error{Code::kRowNotPriced,
                   strf("%s is %g, but a %s has %g: from %g to %g can be priced", what, said,
                        device.name.c_str(), usual, low * usual, high * usual),
                   ""};
    figure = {said * unit, cluster::Origin::kPublished};
    return {};
  };
  const double memory = run.number("gpu_mem_gb").value_or(-1), named = number_before(gpu, "GB");
  if (named > 0 && memory > 0 && std::abs(named - memory) > 0.1 * named)
    return Error{Code::kRowNotPriced,
                 strf("gpu is `%s`, but gpu_mem_gb is %g", gpu.c_str(), memory), ""};
  if (!run.text("gpu_mem_gb").empty())
    LS_TRY(replace(device.memory, memory, kGib, "gpu_mem_gb", 0.25, 2));
  const std::size_t hbm = std::min(notes.find("HBM"), notes.size());
  const double speed = number_before(std::string_view(notes).substr(hbm, 16), "TB/s");
  if (speed > 0)
    LS_TRY(replace(device.memory_bytes_per_s, speed, 1e12, "memory bandwidth", 0.25, 2));
  const double cap = number_before(notes, " W cap"), said = cap > 0 ? cap : number_before(gpu, "W");
  device.watts = {said, cluster::Origin::kPublished};
  const auto power = check_power(device);
  if (!power.ok()) return Error{Code::kRowNotPriced, power.error().message, ""};
  return device;
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
  const auto whole_before = [&](std::size_t& end) {
    while (end > 0 && text[end - 1] == ' ') --end;
    std::size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
    double value = 0;
    std::from_chars(text.data() + begin, text.data() + end, value);
    end = begin;
    return value;
  };
  std::size_t at = unit;
  double gbits = whole_before(at);
  double ports = 1;
  if (at > 0 && text[at - 1] == 'x') ports = whole_before(--at);
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
  made.device = LS_TRY(variant_of(run, row->device));
  made.count = devices;
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
