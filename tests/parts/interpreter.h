// Runs passes of a block in double precision on all ranks of a tensor group at once, naively: what
// a list computes, whatever nn does. Memory is what the lists say it is: values live in storages
// and slices, parts overwrite where they were placed, and what was given back is NaN.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/parts/unit_passes.h"

namespace lockstep::parts {

using Numbers = std::vector<double>;

// Parameters, or their gradients, of one rank by name: "qkv", "qkv_bias".
using Named = std::map<std::string, Numbers>;

// Coefficients of the losses of routers, where a list has these.
inline constexpr double kAuxLoss = 0.7, kZLoss = 0.3;

// Of a router's logits of one token; and what is added to an expert's score to choose it, where
// there is a selection bias.
double score_of(const double* logits, std::size_t expert, const model::Moe& moe);
double test_bias(std::size_t expert);

struct RankState {
  std::map<ValueId, Numbers> memory;  // by storage
  Named params, grads;
  std::int64_t first_row = 0;  // of P among T
};

class Interpreter {
 public:
  Interpreter(const UnitPasses& passes, const model::ModelConfig& config)
      : passes_(passes), config_(config), eps_(config.norm_eps) {}

  // Of a value that is placed as `pass` says.
  void write(RankState& rank, const Pass& pass, ValueId id, const Numbers& numbers) const;
  Numbers read(const RankState& rank, const Pass& pass, ValueId id) const;

  void run(std::vector<RankState>& ranks, const Pass& pass) const;

  // Random ones of the right sizes.
  Named random_params(unsigned seed) const;

 private:
  std::int64_t size(Dim dim) const { return passes_.sizes()[dim]; }
  struct Collective {
    const Part* part;
    std::vector<Numbers> in;  // by rank, when it was issued
  };
  Collective issue(std::vector<RankState>& ranks, const Pass& pass, const Part& part) const;
  void finish(std::vector<RankState>& ranks, const Pass& pass, const Collective& of) const;
  std::vector<Numbers> compute(RankState& rank, const Part& part,
                               const std::vector<Numbers>& in) const;
  Numbers weight_gradient(const Part& part, const std::vector<Numbers>& in) const;
  std::vector<Numbers> compute_others(const Numbers& param, const Part& part,
                                      const std::vector<Numbers>& in) const;
  // Of the kinds of a norm over all heads.
  std::vector<Numbers> compute_wide_norm(const Numbers& gain, const Part& part,
                                         const std::vector<Numbers>& in) const;
  // Of the kinds of a mixture of experts.
  std::vector<Numbers> compute_mixture(const Numbers& weights, const Part& part,
                                       const std::vector<Numbers>& in) const;
  std::vector<Numbers> compute_expert_linear(const Numbers& weights, const Part& part,
                                             const std::vector<Numbers>& in) const;
  Numbers router_loss_grad(const RankState& rank, const Part& part,
                           const std::vector<Numbers>& in) const;
  // Of kinds without parameters.
  std::vector<Numbers> compute_plain(const Part& part, const std::vector<Numbers>& in) const;
  std::int64_t tokens(ValueId id) const { return size(passes_.values()[id].dims.front()); }
  std::int64_t columns(ValueId id) const { return size(passes_.values()[id].dims.back()); }

  const UnitPasses& passes_;
  const model::ModelConfig config_;
  double eps_;
};

}  // namespace lockstep::parts
