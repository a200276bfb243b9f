// The physical machine as data: what one device can do, and the tiers of network that join devices.
// A torus is one tier per axis, each multiplying the one before.
// Plain values: any thread may read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/units.h"

namespace lockstep::cluster {

inline constexpr std::int64_t kMaxDevices = 2147483647;  // a rank is a 32-bit number

// How much a number may be trusted.
enum class Origin : std::uint8_t {
  kPublished,     // printed by the vendor, or in a recipe or paper of a published run
  kRecalled,      // common knowledge, not checked against a source
  kUncalibrated,  // a placeholder of the right order, to be replaced by measurement
  kUser,          // given by the user
};
std::string_view to_text(Origin origin);

// A positive number and where it comes from. Zero means unknown, or not offered by the device.
struct Figure {
  double value = 0;
  Origin origin = Origin::kPublished;

  bool known() const { return value > 0; }
  bool operator==(const Figure&) const = default;
};

// One kind of device. Peaks are dense (no sparsity) FLOP/s.
struct DeviceType {
  std::string name;            // "h100"
  std::string title;           // "NVIDIA H100 SXM 80 GB"
  Figure memory;               // bytes; what a data sheet calls 80 GB is 80 GiB
  Figure memory_bytes_per_s;   // streaming, at peak
  Figure peak_f32;             // FLOP/s without reduced-precision tricks
  Figure peak_bf16;            // FLOP/s; f16 runs at the same rate where there is both
  Figure peak_fp8;             // FLOP/s
  Figure largest_matmul_bf16;  // FLOP/s, best ever measured on a large matrix product
  Figure largest_matmul_fp8;   // FLOP/s
  Figure peak_f16;             // FLOP/s of a device that has no bf16
  bool is_host = false;        // a processor of the host itself: no context, no driver's reserve
  Figure watts = {};           // of power that it may draw; unknown: the usual ones of its name

  bool operator==(const DeviceType&) const = default;
};

enum class TierKind : std::uint8_t {
  kSwitch,  // any two devices at full speed
  kRing,    // a torus axis with its wrap-around links: neighbours only, both ways round
  kLine,    // a torus axis without wrap-around
};
std::string_view to_text(TierKind kind);

// One level of the network. Tiers nest: a tier of size 64 joins eight of a tier of size 8.
struct Tier {
  std::string name;       // "nvlink", "network", "ici-x"
  std::int64_t size = 0;  // devices inside one instance of it
  TierKind kind = TierKind::kSwitch;
  Figure bytes_per_s;           // per device, one direction; on a torus axis per link
  Figure latency_s;             // seconds per hop of a ring algorithm
  double oversubscription = 1;  // >= 1; bytes_per_s is divided by it when all devices talk at once

  bool operator==(const Tier&) const = default;
};

struct Cluster {
  std::string name;  // "h100:16384", or the name in the user's file
  DeviceType device;
  std::int64_t count = 0;   // devices
  std::vector<Tier> tiers;  // innermost first; the last one holds all `count` devices

  bool operator==(const Cluster&) const = default;
};

// kBadCluster where its power is said and so far from the usual that its rates cannot be carried
// over, or where no usual power is known.
inline constexpr double kLeastPower = 0.25, kMostPower = 1.5;
Result<void> check_power(const DeviceType& device);

// Returns `cluster` when it is consistent: at least one device with a known memory, sizes that
// grow, each a multiple of the one before, the last equal to `count`, speeds known and positive.
// Otherwise kBadCluster, naming the tier and both values.
Result<Cluster> validated(Cluster cluster);

}  // namespace lockstep::cluster
