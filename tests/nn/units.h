// Embedding, block and head as objects with a call for each pass: what runs in training
// (nn/unit_runner.h), with the lists of whatever type the buffers have.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/exact_sum.h"
#include "lockstep/nn/unit_runner.h"

namespace lockstep::nn {

class TestUnit {
 public:
  UnitRunner runner(const at::Tensor& of) const;
  // Names of what a pass kept.
  std::vector<std::string> names(const Kept& kept) const;

 protected:
  TestUnit(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
           model::UnitSizes sizes, const Rope* rope, TensorGroup group);
  at::Tensor run(parts::UnitPass pass, const PassInputs& inputs, at::Tensor given = {},
                 Kept* kept = nullptr) const;

  const model::ModelConfig& config_;
  const model::Unit& unit_;
  const model::FlatLayout& flat_;
  model::UnitSizes sizes_;
  const Rope* rope_;
  TensorGroup group_;
  at::Tensor bias_;  // of routers
};

class Embedding : public TestUnit {
 public:
  Embedding(const model::ModelConfig& config, const model::Unit& unit,
            const model::FlatLayout& flat, TensorGroup group = {});
  at::Tensor forward(const at::Tensor& params, const at::Tensor& tokens) const;
  void weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                   bool is_first) const;

 private:
  Embedding for_tokens(const at::Tensor& tokens) const;
};

class Block : public TestUnit {
 public:
  Block(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
        std::int64_t batch, std::int64_t seq, model::Drop drop, const Rope& rope,
        TensorGroup group = {});
  at::Tensor forward(const at::Tensor& params, at::Tensor input) const;
  at::Tensor forward(const at::Tensor& params, at::Tensor input, Kept& stash) const;
  Kept recompute(const at::Tensor& params, at::Tensor input) const;
  at::Tensor input_grad(const at::Tensor& params, Kept stash, at::Tensor d_out, Kept& work) const;
  void weight_grad(Kept work, const at::Tensor& grads, bool is_first) const;
  // Both at once.
  at::Tensor backward(const at::Tensor& params, Kept stash, at::Tensor d_out,
                      const at::Tensor& grads, bool is_first) const;
};

class Head : public TestUnit {
 public:
  Head(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
       std::int64_t chunk, TensorGroup group = {});
  void loss(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
            ExactSum& loss) const;
  at::Tensor loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                           double seed, const at::Tensor& grads, bool is_first,
                           ExactSum& loss) const;

 private:
  Head for_labels(const at::Tensor& labels) const;
};

}  // namespace lockstep::nn
