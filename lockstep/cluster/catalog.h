// Devices known by name, and the usual machine built from each: nodes of that many devices, one
// share of the network per device. A run on an unusual machine describes it in a cluster file.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/cluster/cluster.h"

namespace lockstep::cluster {

struct CatalogRow {
  DeviceType device;
  int node_size = 0;            // devices in the usual scale-up domain; 0 on a torus
  std::string_view scale_up;    // name of the inner tier: "nvlink", "xgmi", "pcie", "ici"
  Figure scale_up_bytes_per_s;  // per device (torus: per link), one direction
  Figure scale_up_latency_s;
  Figure network_bytes_per_s;  // per device, one direction; unknown: no usual network
  Figure network_latency_s;
  int torus_axes = 0;     // 0 for switched machines
  int wrap_multiple = 0;  // a torus axis wraps when its length is a multiple of this
};

// In the order shown to users.
std::span<const CatalogRow> catalog();

// A cluster by its short name:
//   h100:16384        that many devices in the usual nodes; fewer than a node is one partial node
//   gb200:128/64      the same, using 64 devices of each scale-up domain
//   tpu-v5p:8x8x16    a torus with these axes
//   h100              one device
// k in a count is 1024. A device may be called as its driver calls it: "NVIDIA H100 80GB HBM3:8".
// kUnknownDevice for a name that is no row (with the nearest ones), kBadCluster for a count the
// machine cannot have (with the nearest legal counts).
Result<Cluster> cluster_from_name(std::string_view text);

// The same machine with another number of devices: that of the short name where it has one, else
// whole instances of the tier inside the outermost one, or a part of the innermost. Otherwise
// kBadCluster, with the nearest numbers; a torus is refused, whose axes would have to be named.
Result<Cluster> resized(Cluster cluster, std::int64_t count);

}  // namespace lockstep::cluster
