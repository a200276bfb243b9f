#include "tests/nn/units.h"

#include <algorithm>
#include <utility>

#include "lockstep/tensor/as_buffer.h"
#include "tests/nn/unit_layouts.h"

namespace lockstep::nn {

using parts::UnitPass;

namespace {

// Sums of columns may be wider than what they were summed of: only matrices tell a unit's type.
const at::Tensor& matrix_of(const Kept& kept) {
  return std::ranges::find_if(kept, [](const auto& held) { return held.second.dim() > 1; })->second;
}

}  // namespace

TestUnit::TestUnit(const model::ModelConfig& config, const model::Unit& unit,
                   const model::FlatLayout& flat, model::UnitSizes sizes, const Rope* rope,
                   TensorGroup group)
    : config_(config),
      unit_(unit),
      flat_(flat),
      sizes_(sizes),
      rope_(rope),
      group_(group),
      bias_(router_bias(config)) {
  sizes_.tp = group.size();
  sizes_.sequence_parallel = group.shares_rows();
}

UnitRunner TestUnit::runner(const at::Tensor& of) const {
  model::UnitSizes sizes = sizes_;
  sizes.dtype = tensor::dtype_of(of.scalar_type());
  return {config_, unit_, flat_, sizes, rope_, group_};
}

std::vector<std::string> TestUnit::names(const Kept& kept) const {
  const UnitRunner any = runner(matrix_of(kept));
  std::vector<std::string> all;
  for (const auto& [storage, tensor] : kept) all.push_back(any.passes().values()[storage].name);
  return all;
}

at::Tensor TestUnit::run(UnitPass pass, const PassInputs& inputs, at::Tensor given,
                         Kept* kept) const {
  Kept none;
  Kept& held = kept == nullptr ? none : *kept;
  const UnitRunner mine = runner(inputs.params.own.defined() ? inputs.params.own
                                 : given.defined()           ? given
                                                             : matrix_of(held));
  PassInputs biased = inputs;
  biased.router_bias = bias_;
  return mine.run(pass, std::move(given), held, biased);
}

Embedding::Embedding(const model::ModelConfig& config, const model::Unit& unit,
                     const model::FlatLayout& flat, TensorGroup group)
    : TestUnit(config, unit, flat, {}, nullptr, group) {}

Embedding Embedding::for_tokens(const at::Tensor& tokens) const {
  Embedding made = *this;
  made.sizes_.batch = tokens.size(0);
  made.sizes_.seq = tokens.size(1);
  return made;
}

at::Tensor Embedding::forward(const at::Tensor& params, const at::Tensor& tokens) const {
  return for_tokens(tokens).run(UnitPass::kForward, {.params = params, .tokens = tokens});
}

void Embedding::weight_grad(const at::Tensor& tokens, at::Tensor d_out, const at::Tensor& grads,
                            bool is_first) const {
  for_tokens(tokens).run(UnitPass::kFirstBackward,
                         {.grads = [&] { return grads; }, .is_first = is_first, .tokens = tokens},
                         std::move(d_out));
}

Block::Block(const model::ModelConfig& config, const model::Unit& unit,
             const model::FlatLayout& flat, std::int64_t batch, std::int64_t seq, model::Drop drop,
             const Rope& rope, TensorGroup group)
    : TestUnit(config, unit, flat, {.batch = batch, .seq = seq, .drop = drop}, &rope, group) {}

at::Tensor Block::forward(const at::Tensor& params, at::Tensor input) const {
  return run(UnitPass::kEvaluate, {.params = params}, std::move(input));
}

at::Tensor Block::forward(const at::Tensor& params, at::Tensor input, Kept& stash) const {
  stash.clear();
  return run(UnitPass::kForward, {.params = params}, std::move(input), &stash);
}

Kept Block::recompute(const at::Tensor& params, at::Tensor input) const {
  const UnitRunner any = runner(params);
  const parts::Pass& pass = any.passes().at(UnitPass::kRecompute);
  Kept kept = {{pass.storage(pass.before[0]), std::move(input)}};
  run(UnitPass::kRecompute, {.params = params}, {}, &kept);
  return kept;
}

at::Tensor Block::input_grad(const at::Tensor& params, Kept stash, at::Tensor d_out,
                             Kept& work) const {
  work = std::move(stash);
  return run(UnitPass::kInputGrad, {.params = params}, std::move(d_out), &work);
}

void Block::weight_grad(Kept work, const at::Tensor& grads, bool is_first) const {
  run(UnitPass::kWeightGrad, {.grads = [&] { return grads; }, .is_first = is_first}, {}, &work);
}

at::Tensor Block::backward(const at::Tensor& params, Kept stash, at::Tensor d_out,
                           const at::Tensor& grads, bool is_first) const {
  return run(UnitPass::kBackward,
             {.params = params, .grads = [&] { return grads; }, .is_first = is_first},
             std::move(d_out), &stash);
}

Head::Head(const model::ModelConfig& config, const model::Unit& unit, const model::FlatLayout& flat,
           std::int64_t chunk, TensorGroup group)
    : TestUnit(config, unit, flat, {.head_chunk = chunk}, nullptr, group) {}

Head Head::for_labels(const at::Tensor& labels) const {
  Head made = *this;
  made.sizes_.batch = labels.size(0);
  made.sizes_.seq = labels.size(1);
  return made;
}

void Head::loss(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                ExactSum& loss) const {
  for_labels(labels).run(UnitPass::kEvaluate, {.params = params, .labels = labels, .loss = &loss},
                         std::move(input));
}

at::Tensor Head::loss_and_grad(const at::Tensor& params, at::Tensor input, const at::Tensor& labels,
                               double seed, const at::Tensor& grads, bool is_first,
                               ExactSum& loss) const {
  const Head mine = for_labels(labels);
  Kept stash;
  mine.run(UnitPass::kForward, {.params = params}, std::move(input), &stash);
  return mine.run(UnitPass::kBackward,
                  {.params = params,
                   .grads = [&] { return grads; },
                   .is_first = is_first,
                   .labels = labels,
                   .seed = seed,
                   .loss = &loss},
                  {}, &stash);
}

}  // namespace lockstep::nn
