// Seconds of collectives over a group of devices, by the tiers the group crosses. Bandwidth terms
// are those of ring algorithms, which are optimal in bytes; latencies are NCCL's own constants for
// its simple protocol (src/graph/tuning.cc), a logarithmic algorithm where a ring would have more
// steps than one. On a torus the axes a group covers carry it together ("How to Scale Your Model",
// Austin et al. 2025).
#pragma once

#include "lockstep/cluster/cluster.h"
#include "lockstep/cluster/rates.h"

namespace lockstep::cost {

struct Fabric {
  const cluster::Cluster* cluster = nullptr;
  const cluster::DeviceRates* rates = nullptr;
  double network_share = 1;  // of what devices of different nodes can send, that is sent
};

// `size` devices, `stride` apart.
struct Members {
  int size = 1, stride = 1;
};

// `bytes` is the whole: what every member holds afterwards (all_gather), or before
// (reduce_scatter).
double gather_seconds(const Fabric& fabric, double bytes, Members members);
double reduce_seconds(const Fabric& fabric, double bytes, Members members);  // to everyone
inline double scatter_seconds(const Fabric& fabric, double bytes, Members members) {
  return gather_seconds(fabric, bytes, members);
}
// `bytes` is what one member sends, its own part included. `outer` is the share of what would leave
// the inner tier that does: less than 1 where several destinations behind one link are sent to
// once.
double exchange_seconds(const Fabric& fabric, double bytes, Members members, double outer = 1);
// Parts of a group that the inner tier joins: nodes it stretches over.
double nodes_of(const Fabric& fabric, Members members);
// From one device to another `stride` away.
double hop_seconds(const Fabric& fabric, double bytes, int stride);

}  // namespace lockstep::cost
