#include "lockstep/generate/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/parts/unit_passes.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::generate {
namespace {

// Tokens of a prompt that are computed at once, so that their activations stay small.
constexpr std::int64_t kPromptChunk = 1024;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

at::Tensor as_ids(std::span<const std::int64_t> tokens) {
  at::Tensor ids = at::empty({1, std::ssize(tokens)}, at::kLong);
  std::ranges::copy(tokens, ids.mutable_data_ptr<std::int64_t>());
  return ids;
}

Result<void> read_into(hf::ParamSource& params, const checkpoint::Slice& slice,
                       const at::Tensor& into) {
  const at::Tensor own = at::empty({slice.size()}, tensor::scalar_type_of(params.type()));
  LS_TRY(params.read(slice.tensor, slice.shape, slice.begin, bytes_of(own)));
  into.copy_(own);
  return {};
}

}  // namespace

Decoder::Decoder(const model::Model& model, DType dtype)
    : model_(model),
      dtype_(dtype),
      layouts_(model::flat_layouts(model_)),
      router_biases_(static_cast<std::size_t>(model.num_units())) {}

Result<std::unique_ptr<Decoder>> Decoder::load(const model::Model& model, hf::ParamSource& params,
                                               DType dtype) {
  LS_TRY(model::check_unit_bytes(model.config));
  std::unique_ptr<Decoder> made(new Decoder(model, dtype));
  LS_TRY(made->read(params));
  return made;
}

Result<void> Decoder::read(hf::ParamSource& params) {
  for (int unit = 0; unit < model_.num_units(); ++unit) {
    const bool is_head = unit + 1 == model_.num_units();
    nn::UnitBuffers buffers;
    // One buffer has room for what embedding and head have of their own (model/flat_layout.h).
    const at::Tensor shared = is_head && model_.config.tied ? params_[0].own : at::Tensor();
    buffers.own = LS_TRY(read_segment(params, unit, shared));
    if (model_.unit(unit).has_experts())
      buffers.experts = LS_TRY(read_segment(params, experts_of(unit, model_.num_units()), {}));
    params_.push_back(std::move(buffers));
  }
  return read_router_biases(params);
}

Result<at::Tensor> Decoder::read_segment(hf::ParamSource& params, int segment, at::Tensor into) {
  const model::FlatLayout& layout = layouts_[model_.layout_of(segment)];
  if (!into.defined()) into = at::zeros({layout.padded(1)}, tensor::scalar_type_of(dtype_));
  for (const checkpoint::UnitSlice& part : checkpoint::unit_slices(
           model_, segment, layout, {}, {0, layout.size}, checkpoint::Role::kWeight))
    if (!part.is_copy)
      LS_TRY(read_into(params, part.slice, into.narrow(0, part.at, part.slice.size())));
  return into;
}

Result<void> Decoder::read_router_biases(hf::ParamSource& params) {
  for (const checkpoint::Slice& slice : checkpoint::untrained_slices(model_))
    for (int unit = 0; unit < model_.num_units(); ++unit) {
      const auto layer = model::Model::layer(unit);
      if (slice.tensor != model::name_at("blocks.{i}.moe.router.bias", layer)) continue;
      const at::Tensor bias = at::empty({slice.size()}, at::kFloat);
      LS_TRY(read_into(params, slice, bias));
      router_biases_[static_cast<std::size_t>(unit)] = bias;
    }
  return {};
}

void Decoder::begin(std::int64_t capacity) {
  LS_CHECK(capacity > 0 && capacity <= model_.config.max_positions, capacity, " positions");
  const at::ScalarType type = tensor::scalar_type_of(dtype_);
  const std::int64_t columns = 2 * model_.config.kv_heads * model_.config.head_dim;
  past_ = 0;
  runners_.clear();  // they refer to the old tables
  rope_ = std::make_unique<nn::Rope>(model_.config, capacity, type, at::kCPU);
  keys_.assign(params_.size(), {});
  for (int unit = 0; unit < model_.num_units(); ++unit)
    if (model_.unit(unit).attention)
      keys_[static_cast<std::size_t>(unit)] = at::empty({capacity, columns}, type);
}

std::span<const float> Decoder::extend(std::span<const std::int64_t> tokens) {
  LS_CHECK(!tokens.empty(), "no tokens");
  at::Tensor x;
  for (; !tokens.empty();) {
    const auto chunk =
        tokens.first(std::min(tokens.size(), static_cast<std::size_t>(kPromptChunk)));
    tokens = tokens.subspan(chunk.size());
    const std::int64_t count = std::ssize(chunk);
    const at::Tensor ids = as_ids(chunk);
    x = at::Tensor();
    for (int unit = 0; unit + 1 < model_.num_units(); ++unit)
      x = run(unit, count, std::move(x), ids);
    past_ += count;
  }
  logits_ = run(model_.num_units() - 1, 1, x.narrow(0, x.size(0) - 1, 1), {}).to(at::kFloat);
  return {logits_.const_data_ptr<float>(), static_cast<std::size_t>(logits_.numel())};
}

std::vector<at::Tensor> Decoder::outputs(std::span<const std::int64_t> tokens) {
  begin(std::ssize(tokens));
  const at::Tensor ids = as_ids(tokens);
  std::vector<at::Tensor> made;
  for (int unit = 0; unit < model_.num_units(); ++unit) {
    // A unit may write into what it is given.
    at::Tensor given = made.empty() ? at::Tensor() : made.back().clone();
    made.push_back(run(unit, std::ssize(tokens), std::move(given), ids));
  }
  past_ = std::ssize(tokens);
  return made;
}

at::Tensor Decoder::run(int unit, std::int64_t tokens, at::Tensor given, const at::Tensor& ids) {
  const auto index = static_cast<std::size_t>(unit);
  nn::Kept none;
  return runner(unit, tokens)
      .run(parts::UnitPass::kGenerate, std::move(given), none,
           {.params = params_[index],
            .tokens = ids,
            .router_bias = router_biases_[index],
            .past = past_,
            .cached_keys = keys_[index],
            .one_row_by_vector = true});
}

const nn::UnitRunner& Decoder::runner(int unit, std::int64_t tokens) {
  const std::pair key(model_.order[static_cast<std::size_t>(unit)], tokens);
  const auto known = runners_.find(key);
  if (known != runners_.end()) return *known->second;
  std::erase_if(runners_, [&](const auto& one) {
    return one.first.second != 1 && one.first.second != tokens;
  });
  const model::Unit& of = model_.unit(unit);
  const auto layout = [&](int segment) { return &layouts_[model_.layout_of(segment)]; };
  const nn::UnitPlace place(
      *layout(unit), of.has_experts() ? layout(experts_of(unit, model_.num_units())) : nullptr);
  const model::UnitSizes sizes = {.seq = tokens, .dtype = dtype_, .caches_keys = true};
  auto made = std::make_unique<nn::UnitRunner>(model_.config, of, place, sizes, rope_.get());
  return *runners_.emplace(key, std::move(made)).first->second;
}

}  // namespace lockstep::generate
