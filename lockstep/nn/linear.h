// A linear layer inside a unit's flat buffer: y = x W^T + b with W [out, in], where the unit has a
// bias b [out] for it. Parameters that one product serves (query, key and value; gate and up) are
// one layer. Tensor ranks cut W by rows, and then b too; or by columns, and then every rank holds
// all of b and its product is a summand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"

namespace lockstep::nn {

// Immutable; any thread. `params` and `grads` are the unit's flat buffers.
class Linear {
 public:
  // `names` without ".weight" and ".bias". REQUIRES: adjacent in this order; of this rank's share,
  // [out, in].
  Linear(const model::Unit& unit, const model::FlatLayout& flat,
         std::initializer_list<std::string> names, std::int64_t out, std::int64_t in);

  at::Tensor weight(const at::Tensor& params) const;
  bool has_bias() const { return bias_.size() > 0; }
  at::Tensor bias(const at::Tensor& params) const;  // REQUIRES: has_bias()

  // [T, out]; nothing else is allocated.
  at::Tensor forward(const at::Tensor& params, const at::Tensor& x) const;
  // [T, in] from the gradient of the output.
  at::Tensor input_grad(const at::Tensor& params, const at::Tensor& d) const;
  // Of the bias, [out], summed over the rows of `d` in f32 or wider; undefined where there is none.
  at::Tensor bias_grad(const at::Tensor& d) const;

  // Write (is_first) or add.
  void add_weight_grad(const at::Tensor& grads, const at::Tensor& d, const at::Tensor& x,
                       bool is_first) const;
  void add_bias_grad(const at::Tensor& grads, const at::Tensor& made, bool is_first) const;

 private:
  std::int64_t in_;
  model::FlatRange weight_, bias_;  // bias: empty where there is none
};

}  // namespace lockstep::nn
