// What contradicts itself in a run file, shown at its place. Used by read_spec() alone.
#pragma once

#include "lockstep/config/fields.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {

// What is known of a request while it is being read: a part is absent when a mistake in it has
// already been reported, and the rules that need it are then left out.
struct Draft {
  const config::Settings& settings;
  std::optional<model::ModelConfig> model;
  std::optional<cluster::Cluster> cluster;
  std::optional<mesh::Degrees> degrees;
  std::vector<int> layers = {};  // of each stage; empty: not given
  Recompute recompute = {};

  // A setting whose range is that of int.
  std::optional<int> small(std::string_view key) const;
  std::optional<cost::CpMethod> context() const;
};

// Fills in dp when it was left out, then reports every rule that does not hold.
void apply_rules(Draft& draft, config::Report& report);

}  // namespace lockstep::spec
