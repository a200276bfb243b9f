// A question about a known model on a known cluster.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/cluster/catalog.h"
#include "lockstep/model/catalog.h"
#include "lockstep/planner/lattice.h"

namespace lockstep::planner {

struct Asked {
  Asked(const char* model, const char* machine, std::int64_t seq, std::int64_t batch)
      : cluster(*cluster::cluster_from_name(machine)),
        shape(cost::shape_of(model::find(model)->config)),
        question{.shape = &shape,
                 .cluster = &cluster,
                 .rates = &cluster::rates_of(cluster.device),
                 .devices = cluster.count,
                 .seq = seq,
                 .global_batch = batch} {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  cluster::Cluster cluster;
  cost::ModelShape shape;
  Question question;
};

}  // namespace lockstep::planner
