// A dump of one training step of another framework (docs/formats/audit.md): weights, batch,
// gradients and what it said of itself, put together from what its ranks wrote.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/audit/pieces.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/result.h"
#include "lockstep/model/arch.h"

namespace lockstep::audit {

// A sequence as it entered the loss: labels[i] is what follows tokens[i], or is ignored. All of a
// dump are as long as its longest, ignored tokens behind the shorter ones.
struct Sample {
  int data_rank = 0;
  int microbatch = 0;  // of that rank
  std::vector<std::int64_t> tokens, labels;
  std::int64_t live() const;  // labels that count
};

// What the framework said; absent where it did not.
struct Said {
  std::optional<double> loss_sum = {}, loss = {}, grad_norm = {};
  std::optional<std::int64_t> tokens = {};
};

struct Dump {
  std::string path, framework;
  int ranks = 1;                                     // processes
  int data_ranks = 1;                                // that have samples of their own
  std::map<std::string, std::int64_t> degrees = {};  // of its layout: "tp", "pp", ...
  DType compute = DType::kF32;                       // of its passes
  model::Model model = {};
  std::vector<Tensor> weights = {}, gradients = {};  // in the order of the forward pass
  std::vector<Sample> samples = {};                  // by data rank and microbatch
  Said said = {};
  std::vector<std::string> differ = {};  // copies that are not alike

  std::int64_t seq() const { return std::ssize(samples.at(0).tokens); }
  std::int64_t live() const;
  std::int64_t degree(const std::string& name) const;  // 1 where it is not said
  int microbatches() const;                            // of the data rank that has most
};

// Refuses a dump that is not whole or does not fit its model (LS0826), a model that cannot be
// trained here (LS0840), and files that cannot be read.
Result<Dump> read_dump(const std::string& folder);

}  // namespace lockstep::audit
