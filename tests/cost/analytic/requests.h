// Requests that tests of prices share.
#pragma once

#include "lockstep/cluster/catalog.h"
#include "lockstep/cost/analytic/price.h"
#include "lockstep/model/catalog.h"

namespace lockstep::cost {

// A request with its model and cluster. Not copied: the request points into it.
struct Rig {
  ModelShape shape;
  cluster::Cluster machine;
  PriceRequest request;

  Rig(const ModelShape& model, const char* cluster_name)
      : shape(model), machine(*cluster::cluster_from_name(cluster_name)) {
    request.shape = &shape;
    request.cluster = &machine;
    request.rates = &cluster::rates_of(machine.device);
    request.seq = 2048;
    request.global_batch = 1;
  }
  Rig(const char* model, const char* cluster_name)
      : Rig(shape_of(model::find(model)->config), cluster_name) {}
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
};

// GPT of Megatron's papers: ffn 4h, vocabulary 51,200, dropout, unfused attention.
inline ModelShape megatron_gpt(int layers, double hidden, double heads) {
  ModelShape s;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = s.kv_heads = heads;
  s.qk_dim = s.v_dim = hidden / heads;
  s.ffn = 4 * hidden;
  s.vocab = 51200;
  s.mlp_matrices = 2;
  s.learned_positions = 2048;
  s.tied = s.layer_norm = s.biases = true;
  return s;
}

}  // namespace lockstep::cost
