#include "tests/nn/sharded.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local/local.h"
#include "tests/nn/unit_layouts.h"

namespace lockstep::nn {
namespace {

constexpr Seconds kDeadline{30.0};

const model::Param& param_at(const Tiny& tiny, int unit, const model::FlatParam& place) {
  return tiny.unit(unit).params[static_cast<std::size_t>(place.param)];
}

// A view of a parameter of a flat buffer, cut to what a rank holds of it.
at::Tensor shard_of(const model::Param& param, const at::Tensor& flat,
                    const model::FlatParam& place, Ways ways, std::int64_t rank) {
  const model::TensorShard shard = model::tensor_shard(param, ways.tp, rank);
  return flat.narrow(0, place.offset, place.numel)
      .view(param.shape)
      .narrow(shard.dim, shard.begin, shard.length);
}

}  // namespace

std::vector<Ways> all_ways() {
  return {{1, false}, {1, true}, {2, false}, {2, true}, {4, false}, {4, true}};
}

std::vector<Shape> divisible_shapes() {
  std::vector<Shape> all = {
      {.heads = 8, .kv_heads = 4, .head_dim = 8, .vocab = 52},
      {.batch = 1, .seq = 40, .hidden = 48, .heads = 4, .kv_heads = 4, .ffn = 72, .vocab = 60},
      {.batch = 3,
       .seq = 20,
       .hidden = 32,
       .heads = 16,
       .kv_heads = 4,
       .head_dim = 4,
       .ffn = 144,
       .vocab = 36},
      {.batch = 1, .seq = 200, .hidden = 40, .heads = 4, .kv_heads = 4, .head_dim = 8, .vocab = 8}};
  all.push_back({.heads = 8, .kv_heads = 2, .head_dim = 8, .vocab = 51});
  all.push_back({.heads = 4, .kv_heads = 1, .head_dim = 8, .vocab = 5});
  for (const Kin kin : kAllKin)
    for (const std::size_t i : {0U, 4U})
      if (kin != Kin::kLlama) all.push_back(all[i].as(kin));
  return all;
}

Sharded::Sharded(const Tiny& of, Ways how)
    : tiny(of), ways(how), flats(unit_layouts(of.model, how.tp)) {}

at::Tensor Sharded::cut(int unit, const at::Tensor& whole, std::int64_t rank) const {
  at::Tensor own = at::full({flat(unit).padded(2)}, kNan, whole.options());
  for (const model::FlatParam& place : flat(unit).params) {
    const at::Tensor part =
        shard_of(param_at(tiny, unit, place), whole, tiny.flat(unit).of(place.param), ways, rank);
    own.narrow(0, place.offset, part.numel()).copy_(part.reshape({-1}));
    own.narrow(0, place.offset + part.numel(), place.numel - part.numel()).zero_();
  }
  return own;
}

at::Tensor Sharded::join(int unit, const std::vector<at::Tensor>& grads) const {
  at::Tensor whole = at::zeros({tiny.flat(unit).padded(2)}, grads[0].options());
  for (const model::FlatParam& place : flat(unit).params) {
    const model::Param& param = param_at(tiny, unit, place);
    for (std::size_t rank = 0; rank < grads.size(); ++rank) {
      const at::Tensor to = shard_of(param, whole, tiny.flat(unit).of(place.param), ways,
                                     static_cast<std::int64_t>(rank));
      const at::Tensor part = grads[rank].narrow(0, place.offset, to.numel()).view(to.sizes());
      const at::Tensor padding =
          grads[rank].narrow(0, place.offset + to.numel(), place.numel - to.numel());
      EXPECT_TRUE(at::equal(padding, at::zeros_like(padding))) << param.name << " " << rank;
      const bool is_whole = to.numel() == param.numel() && grads.size() > 1;
      const model::FlatRange summands = flat(unit).partial(ways.sp);
      const bool is_summand = (place.offset >= summands.begin && place.end() <= summands.end) ||
                              model::copies(param, ways.tp) > 1;
      if (is_whole && rank > 0 && !is_summand) {
        EXPECT_TRUE(at::equal(part, to)) << param.name << " " << rank;
      }
      if (is_summand && grads.size() > 1)
        to.add_(part);
      else
        to.copy_(part);
    }
  }
  return whole;
}

at::Tensor Sharded::path(const at::Tensor& whole, std::int64_t rank) const {
  if (!ways.sp) return whole.clone();
  const std::int64_t rows = whole.size(0) / ways.tp;
  return whole.narrow(0, rank * rows, rows).clone();
}

at::Tensor Sharded::join_path(const std::vector<at::Tensor>& parts) const {
  if (ways.sp) return at::cat(parts);
  for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(part, parts[0]));
  return parts[0];
}

void on_ranks(Ways ways, const std::function<void(const TensorGroup&, comm::Ledger&)>& body) {
  comm::run_local(ways.tp, [&](comm::World& world) {
    std::vector<Rank> members;
    for (int rank = 0; rank < ways.tp; ++rank) members.emplace_back(rank);
    const auto comm = world.connect("tp", "tp", members, Deadline::after(kDeadline));
    body(TensorGroup(*comm, ways.sp, kDeadline), world.ledger());
  });
}

}  // namespace lockstep::nn
