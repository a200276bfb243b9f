#include "lockstep/cluster/catalog.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cluster {
namespace {

// A row in the units of a data sheet, whose GB of memory are GiB. Peaks are dense TFLOP/s; scale-up
// and link speeds are GB/s in one direction (vendors print the sum of both); the network is Gbit/s
// per device.
struct Sheet {
  const char* name;
  const char* title;
  Figure memory_gb, memory_tb_s;
  Figure f32, bf16, fp8, matmul_bf16, matmul_fp8;
  int node_size;
  const char* scale_up;
  Figure scale_up_gb_s, network_gbit_s;
  int torus_axes = 0, wrap_multiple = 0;
  Figure f16 = {};  // of a device without bf16
};

constexpr Figure r(double value) { return {value, Origin::kRecalled}; }
constexpr Figure u(double value) { return {value, Origin::kUncalibrated}; }

// Peaks, memory and links as printed by the vendors and in the recipes of published runs; r() marks
// what is only recalled, u() a placeholder. Largest matrix products: mamf-finder results collected
// in "Machine Learning Engineering" (Bekman). A TPU axis wraps around in multiples of its cube.
// clang-format off
constexpr Sheet kSheets[] = {
    // name          title                             GB      TB/s      f32       bf16      fp8      matmul bf16, fp8  node  scale-up, GB/s     Gbit/s
    {"v100",         "NVIDIA V100 SXM2 32 GB",         {32},   r(0.9),   r(15.7),  {},       {},      {},     {},       8,  "nvlink", r(150),   r(50),  0, 0,  {125}},
    {"a100-40",      "NVIDIA A100 SXM 40 GB",          {40},   r(1.555), r(19.5),  {312},    {},      {271},  {},       8,  "nvlink", r(300),   r(200)},
    {"a100",         "NVIDIA A100 SXM 80 GB",          {80},   {2.0},    r(19.5),  {312},    {},      {271},  {},       8,  "nvlink", r(300),   r(200)},
    {"a100-64",      "NVIDIA A100 SXM 64 GB",          r(64),  r(1.64), r(19.5),  r(312),   {},      {},     {},       4,  "nvlink", r(300),   r(100)},
    {"a100-pcie",    "NVIDIA A100 PCIe 80 GB",         {80},   r(1.94),  r(19.5),  {312},    {},      {},     {},       8,  "pcie",   r(32),    r(200)},
    {"a800",         "NVIDIA A800 SXM 80 GB",          {80},   r(2.0),   r(19.5),  r(312),   {},      {},     {},       8,  "nvlink", r(200),   r(200)},
    {"h100",         "NVIDIA H100 SXM 80 GB",          {80},   {3.35},   r(67),    {989},    {1979},  {794},  {1403},   8,  "nvlink", {450},    {400}},
    {"h100-96",      "NVIDIA H100 96 GB HBM2e, 500 W", {96},   {2.4},    r(67),    {989},    {1979},  {},     {},       8,  "nvlink", {450},    {400}},
    {"h100-64",      "NVIDIA H100 SXM 64 GB HBM2e",    r(64),  r(2.0),  r(67),    {989},    {1979},  {},     {},       4,  "nvlink", r(450),   r(200)},
    {"h100-pcie",    "NVIDIA H100 PCIe 80 GB",         {80},   r(2.0),   r(51),    r(756),   r(1513), {},     {},       8,  "pcie",   r(64),    r(200)},
    {"h800",         "NVIDIA H800 SXM 80 GB",          {80},   r(3.35),  r(67),    r(989),   r(1979), {},     {},       8,  "nvlink", r(200),   r(400)},
    {"h20",          "NVIDIA H20 96 GB",               {96},   r(4.0),   r(44),    r(148),   r(296),  {},     {},       8,  "nvlink", r(450),   r(400)},
    {"h200",         "NVIDIA H200 SXM 141 GB",         {141},  {4.8},    r(67),    {989},    {1979},  {},     {1453},   8,  "nvlink", {450},    {400}},
    {"gh200",        "NVIDIA GH200 96 GB",             {96},   r(4.0),   r(67),    r(989),   r(1979), {},     {},       4,  "nvlink", r(450),   r(200)},
    {"b200",         "NVIDIA B200 SXM 180 GB",         {180},  {8},      r(75),    {2250},   {4500},  {1745}, {3433},   8,  "nvlink", {900},    {400}},
    {"gb200",        "NVIDIA GB200 186 GB",            {186},  {8},      r(80),    {2500},   {5000},  {1822}, {3616},   72, "nvlink", {900},    {400}},
    {"b300",         "NVIDIA B300 SXM 288 GB",         {288},  {8},      {},       {2250},   r(4500), {},     {},       8,  "nvlink", {900},    r(800)},
    {"gb300",        "NVIDIA GB300 288 GB",            {288},  {8},      {},       {2500},   r(5000), {},     {},       72, "nvlink", {900},    r(800)},
    {"l40s",         "NVIDIA L40S 48 GB",              {48},   {0.864},  {91.6},   r(366),   {733},   {},     {},       8,  "pcie",   {32},     {}},
    {"rtx-4090",     "NVIDIA RTX 4090 24 GB",          {24},   r(1.0),   r(82.6),  r(165),   r(330),  {},     {},       8,  "pcie",   r(32),    {}},
    {"rtx-5090",     "NVIDIA RTX 5090 32 GB",          {32},   r(1.79),  r(104.8), r(209.5), r(419),  {},     {},       8,  "pcie",   r(64),    {}},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 96 GB",      {96},   r(1.8),   r(126),   r(504),   r(1008), {},     {},       8,  "pcie",   r(64),    {}},
    {"mi250",        "AMD MI250 128 GB, both dies",    {128},  r(3.28),  r(45.3),  r(362),   {},      {},     {},       4,  "xgmi",   r(50),    r(200)},
    {"mi250x",       "AMD MI250X 128 GB, both dies",   {128},  {3.28},   r(47.9),  {383},    {},      {},     {},       4,  "xgmi",   r(50),    {200}},
    {"mi300x",       "AMD MI300X 192 GB",              {192},  {5.3},    r(163.4), {1307},   {2610},  {668},  {},       8,  "xgmi",   r(448),   r(400)},
    {"mi325x",       "AMD MI325X 256 GB",              {256},  {6},      {163.4},  {1307},   {2615},  {},     {},       8,  "xgmi",   r(448),   r(400)},
    {"mi355x",       "AMD MI355X 288 GB",              {288},  {8},      r(157.3), {2500},   r(5000), {1565}, {},       8,  "xgmi",   r(537.5), r(400)},
    {"tpu-v3",       "Google TPU v3",                  {32},   r(0.9),   {},       r(123),   {},      {},     {},       0,  "ici",    r(82),    {},  2, 16},
    {"tpu-v4",       "Google TPU v4",                  {32},   {1.2},    {},       {275},    {},      {},     {},       0,  "ici",    r(45),    {},  3, 4},
    {"tpu-v5e",      "Google TPU v5e",                 {16},   {0.82},   {},       {197},    {},      {},     {},       0,  "ici",    r(45),    {},  2, 16},
    {"tpu-v5p",      "Google TPU v5p",                 {95},   {2.76},   {},       {459},    {},      {},     {},       0,  "ici",    r(90),    {},  3, 4},
    {"tpu-v6e",      "Google TPU v6e",                 r(32),  r(1.6),   {},       {918},    {},      {},     {},       0,  "ici",    r(90),    {},  2, 16},
    {"tpu-v7x",      "Google TPU v7x",                 r(192), r(7.4),   {},       r(2307),  r(4614), {},     {},       0,  "ici",    r(100),   {},  3, 4},
    {"cpu-gloo",     "one CPU core, Gloo on one host", u(4),   u(0.01),  u(0.05),  u(0.05),  {},      {},     {},       64, "gloo",   u(1),     {}},
};
// clang-format on

// What nvidia-smi, rocm-smi and torch.cuda.get_device_name() call devices, without the vendor.
struct DriverName {
  std::string_view name, device;
};
constexpr DriverName kDriverNames[] = {
    {"V100-SXM2-32GB", "v100"},
    {"A100-SXM4-40GB", "a100-40"},
    {"A100-SXM4-80GB", "a100"},
    {"A100 80GB PCIe", "a100-pcie"},
    {"A800-SXM4-80GB", "a800"},
    {"H100 80GB HBM3", "h100"},
    {"H100 SXM5 80GB", "h100"},
    {"H200 SXM5 141GB", "h200"},
    {"GH200 96GB HBM3", "gh200"},
    {"GH200 480GB", "gh200"},
    {"B300 SXM6 AC", "b300"},
    {"GeForce RTX 4090", "rtx-4090"},
    {"GeForce RTX 5090", "rtx-5090"},
    {"RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
    {"RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"},
    {"MI300X OAM", "mi300x"},
    {"MI325X OAM", "mi325x"}};

// Letters and digits in lower case, without the name of a vendor before them.
std::string folded(std::string_view text) {
  std::string out;
  for (const char letter : text)
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (const std::string_view vendor : {"nvidia", "tesla", "amd", "instinct", "google"})
    if (out.starts_with(vendor)) out.erase(0, vendor.size());
  return out;
}

constexpr Figure times(Figure figure, double factor) {
  return {figure.value * factor, figure.origin};
}

CatalogRow to_row(const Sheet& s) {
  constexpr double kGiga = 1e9, kTera = 1e12, kGbit = 1e9 / 8;
  // Ring step of NCCL's simple protocol over NVLink and over the network (its src/graph/tuning.cc),
  // for other links and vendors a placeholder; hop of an ICI link ("How to Scale Your Model",
  // Austin et al. 2025); a Gloo message is a placeholder.
  constexpr Figure kNvlinkHop = {3.4e-6}, kOtherHop = u(3.4e-6), kIciHop = {1e-6},
                   kGlooHop = u(1e-4);
  constexpr double kNetworkHop = 14e-6;
  CatalogRow row;
  row.device = {s.name,
                s.title,
                times(s.memory_gb, kGib),
                times(s.memory_tb_s, kTera),
                times(s.f32, kTera),
                times(s.bf16, kTera),
                times(s.fp8, kTera),
                times(s.matmul_bf16, kTera),
                times(s.matmul_fp8, kTera),
                times(s.f16, kTera)};
  row.node_size = s.node_size;
  row.scale_up = s.scale_up;
  row.scale_up_bytes_per_s = times(s.scale_up_gb_s, kGiga);
  const bool nvlink = row.scale_up == "nvlink";
  row.device.is_host = row.scale_up == "gloo";
  row.scale_up_latency_s = row.device.is_host ? kGlooHop
                           : s.torus_axes > 0 ? kIciHop
                           : nvlink           ? kNvlinkHop
                                              : kOtherHop;
  row.network_bytes_per_s = times(s.network_gbit_s, kGbit);
  if (row.network_bytes_per_s.known())
    row.network_latency_s = nvlink ? Figure{kNetworkHop} : u(kNetworkHop);
  row.torus_axes = s.torus_axes;
  row.wrap_multiple = s.wrap_multiple;
  return row;
}

Error bad_name(std::string message, std::string help) {
  return {Code::kBadCluster, std::move(message), std::move(help)};
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  const Result<double> number = parse_amount(text, Suffixes::kBinary);
  if (!number.ok() || *number != std::floor(*number) || *number < 1 || *number > kMaxDevices)
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

// `amount` as it was written, or empty.
Cluster with_device(const CatalogRow& row, std::string_view amount, std::int64_t count) {
  const std::string size = amount.empty() ? "" : join_parts(":", amount);
  return {row.device.name + size, row.device, count, {}};
}

// "16384" or "128/64".
Result<Cluster> switched(const CatalogRow& row, std::string_view text, std::string_view amount) {
  const bool is_said = !amount.empty();
  if (!is_said) amount = "1";
  const std::size_t slash = amount.find('/');
  const auto count = parse_count(amount.substr(0, slash));
  auto node = std::optional<std::int64_t>(row.node_size);
  if (slash != std::string_view::npos) node = parse_count(amount.substr(slash + 1));
  const std::string& device = row.device.name;
  if (amount.find('x') != std::string_view::npos)
    return bad_name(join_parts("`", text, "`: ", device, " is not a torus, so it has no axes"),
                    "give the number of devices, for example " + device + ":64");
  if (!count || !node)
    return bad_name(
        join_parts("`", text, "`: the number of devices must be a whole number of at least 1 and ",
                   "at most ", kMaxDevices),
        join_parts("write ", device, ":64, or ", device,
                   ":64/4 for nodes that use four devices each"));
  if (*node > row.node_size)
    return bad_name(join_parts("`", text, "`: ", *node, " devices per node, but ", device,
                               " has at most ", row.node_size),
                    "describe an unusual machine in a cluster file");
  const auto nodes = slash == std::string_view::npos ? "" : amount.substr(slash);
  Cluster cluster = with_device(row, is_said ? join_parts(*count, nodes) : "", *count);
  const std::int64_t inner = std::min(*node, *count);
  if (*count % inner != 0)
    return bad_name(join_parts("`", text, "`: ", *count, " devices do not fill nodes of ", inner),
                    join_parts("the nearest counts are ", *count / inner * inner, " and ",
                               (*count / inner + 1) * inner));
  cluster.tiers.push_back({std::string(row.scale_up), inner, TierKind::kSwitch,
                           row.scale_up_bytes_per_s, row.scale_up_latency_s});
  if (*count > inner) {
    if (!row.network_bytes_per_s.known())
      return bad_name(
          join_parts("`", text, "`: there is no usual network between nodes of ", row.node_size,
                     " ", device),
          join_parts("use at most ", row.node_size, ", or describe the network in a cluster file"));
    cluster.tiers.push_back(
        {"network", *count, TierKind::kSwitch, row.network_bytes_per_s, row.network_latency_s});
  }
  return validated(std::move(cluster));
}

// "8x8x16".
Result<Cluster> torus(const CatalogRow& row, std::string_view text, std::string_view amount) {
  constexpr std::string_view kAxisNames = "xyz";
  constexpr std::int64_t kLongestAxis = 1 << 20;
  const std::string example = row.device.name + (row.torus_axes == 2 ? ":16x16" : ":4x4x8");
  Cluster cluster = with_device(row, amount, 1);
  if (amount.empty()) amount = row.torus_axes == 2 ? "1x1" : "1x1x1";
  int num_axes = 0;
  for (std::size_t begin = 0; begin <= amount.size(); ++num_axes) {
    const std::size_t end = std::min(amount.find('x', begin), amount.size());
    const auto length = parse_count(amount.substr(begin, end - begin));
    begin = end + 1;
    if (!length || *length > kLongestAxis || num_axes == row.torus_axes) {
      num_axes = -1;
      break;
    }
    if (*length == 1) continue;
    cluster.count *= *length;
    const TierKind kind = *length % row.wrap_multiple == 0 ? TierKind::kRing : TierKind::kLine;
    cluster.tiers.push_back({std::string(row.scale_up) + "-" + kAxisNames[std::size_t(num_axes)],
                             cluster.count, kind, row.scale_up_bytes_per_s,
                             row.scale_up_latency_s});
  }
  if (num_axes != row.torus_axes)
    return bad_name(join_parts("`", text, "`: ", row.device.name,
                               " is a torus; give the lengths of its ", row.torus_axes, " axes"),
                    "for example " + example);
  if (cluster.tiers.empty())
    cluster.tiers.push_back({std::string(row.scale_up) + "-x", 1, TierKind::kLine,
                             row.scale_up_bytes_per_s, row.scale_up_latency_s});
  return validated(std::move(cluster));
}

Error unknown(std::string_view name) {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) names.push_back(row.device.name);
  std::string help = config::did_you_mean(name, names);
  if (help.empty()) help = "the known devices are " + config::listed(names);
  return {Code::kUnknownDevice, "no device is called `" + std::string(name) + "`", std::move(help)};
}

}  // namespace

std::span<const CatalogRow> catalog() {
  static const std::vector<CatalogRow> rows = [] {
    std::vector<CatalogRow> made;
    for (const Sheet& sheet : kSheets) made.push_back(to_row(sheet));
    return made;
  }();
  return rows;
}

Result<Cluster> cluster_from_name(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string name = folded(text.substr(0, colon));
  const auto driver = std::ranges::find_if(
      kDriverNames, [&](const DriverName& known) { return folded(known.name) == name; });
  const std::string wanted = driver == std::end(kDriverNames) ? name : folded(driver->device);
  const auto table = catalog();
  const auto row = std::ranges::find_if(table, [&](const CatalogRow& r) {
    return folded(r.device.name) == wanted || folded(r.device.title) == wanted;
  });
  if (row == table.end()) return unknown(text.substr(0, colon));
  const bool is_alone = colon == std::string_view::npos;
  const std::string_view amount = is_alone ? "" : text.substr(colon + 1);
  if (!is_alone && amount.empty())
    return bad_name(join_parts("`", text, "`: the number of devices must be at least 1"),
                    join_parts("for example ", row->device.name, ":64"));
  return row->torus_axes > 0 ? torus(*row, text, amount) : switched(*row, text, amount);
}

Result<Cluster> resized(Cluster cluster, std::int64_t count) {
  if (const auto usual = cluster_from_name(cluster.name); usual.ok() && *usual == cluster) {
    const std::size_t nodes = std::min(cluster.name.find('/'), cluster.name.size());
    return cluster_from_name(
        join_parts(cluster.device.name, ":", count, cluster.name.substr(nodes)));
  }
  if (count == cluster.count) return cluster;
  cluster.name = join_parts(cluster.name, ", ", count, " devices");
  auto& tiers = cluster.tiers;
  if (tiers.front().kind != TierKind::kSwitch)
    return bad_name(join_parts("`", cluster.name, "`: a torus has axes, not a number of devices"),
                    "describe it in a cluster file of its own");
  if (tiers.size() == 1 && count > cluster.count)
    return bad_name(join_parts("`", cluster.name, "`: no network joins more than ", cluster.count),
                    join_parts("use at most ", cluster.count, ", or describe the network"));
  while (tiers.size() > 1 && tiers[tiers.size() - 2].size >= count) tiers.pop_back();
  cluster.count = tiers.back().size = count;
  return validated(std::move(cluster));
}

}  // namespace lockstep::cluster
