// A cluster as `lockstep cluster --json` writes it.
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/cluster/cluster.h"

namespace lockstep::cli {

Json cluster_json(const cluster::Cluster& cluster);

}  // namespace lockstep::cli
