// The machine a published run names: device, node and network.
#pragma once

#include "lockstep/backtest/run_table.h"
#include "lockstep/base/result.h"
#include "lockstep/cluster/cluster.h"

namespace lockstep::backtest {

// kRowNotPriced for a device that is no row of the catalogue.
Result<cluster::Cluster> machine_of(const PublishedRun& run, int devices);

// Bytes per second and device of a network as sources print it: "4x100 Gb/s Omni-Path per node",
// "400 Gb/s per GPU"; 0 when the text holds no rate. Without "per", a product or 800 Gb/s and more
// are a node's.
double network_rate(const std::string& text, double devices_per_node);

}  // namespace lockstep::backtest
