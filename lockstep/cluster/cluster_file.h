// A cluster described by the user, in TOML or JSON:
//
//   name = "two racks"
//   devices = 128
//   [device]
//   base = "h100"             # figures of a catalogue row, each of which may be replaced
//   memory = "94 GB"
//   [[tier]]                  # innermost first; without tiers, the usual machine of the base
//   name = "nvlink"
//   devices = 8
//   bandwidth = 450           # GB/s
#pragma once

#include <optional>
#include <string>

#include "lockstep/cluster/cluster.h"
#include "lockstep/config/document.h"
#include "lockstep/config/fields.h"

namespace lockstep::cluster {

const config::FieldTable& cluster_fields();  // of the file
const config::FieldTable& tier_fields();     // of one [[tier]]

// The cluster, or nothing and every mistake in `report`.
std::optional<Cluster> read_cluster(const config::Document& document, config::Report& report);

// A file when `text` ends in .toml or .json, otherwise a short name (catalog.h).
std::optional<Cluster> find_cluster(const std::string& text, config::Report& report);

}  // namespace lockstep::cluster
