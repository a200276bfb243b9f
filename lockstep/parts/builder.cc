#include "lockstep/parts/builder.h"

#include <utility>

namespace lockstep::parts {

std::vector<ValueId> Builder::Normed::stats() const {
  return mean == kNoValue ? std::vector{rstd} : std::vector{rstd, mean};
}

Part& Builder::put(Kind kind, std::vector<ValueId> in, std::vector<ValueId> out,
                   std::string_view param) {
  const auto origin = static_cast<int>(list_.parts.size());
  list_.parts.push_back({kind, std::move(in), std::move(out), param, origin});
  return list_.parts.back();
}

ValueId Builder::part(Kind kind, std::vector<ValueId> in, std::string name, std::vector<Dim> dims,
                      Elem elem, std::string_view param) {
  const ValueId made = list_.values.add(std::move(name), std::move(dims), elem);
  put(kind, std::move(in), {made}, param);
  return made;
}

ValueId Builder::same(Kind kind, std::vector<ValueId> in, std::string_view param) {
  const Value of = list_.values[in[0]];
  return part(kind, std::move(in), of.name, of.dims, of.elem, param);
}

Builder::Normed Builder::norm(ValueId x, std::string_view param, std::string name,
                              const std::string& of) {
  std::vector<Dim> rows = list_.values[x].dims;
  rows.pop_back();
  const bool has_mean = config_.norm == model::NormKind::kLayerNorm;
  Normed made{};
  made.mean = has_mean ? list_.values.add(of + "_mean", rows, Elem::kWide) : kNoValue;
  made.rstd = list_.values.add(of + "_rstd", rows, Elem::kWide);
  made.y = list_.values.like(x, std::move(name));
  std::vector<ValueId> out = made.stats();
  out.insert(out.begin(), made.y);
  put(has_mean ? Kind::kLayerNorm : Kind::kRmsNorm, {x}, std::move(out), param);
  return made;
}

ValueId Builder::wide_norm(ValueId x, std::string_view param) {
  const Value of = list_.values[x];
  const ValueId own = part(Kind::kSquares, {x}, of.name + "_squares", {of.dims[0]}, Elem::kWide);
  const ValueId all = same(Kind::kSumRanks, {own});
  const ValueId rstd =
      part(Kind::kRstd, {all}, of.name + "_rstd", {of.dims[0]}, Elem::kWide, param);
  return part(Kind::kWideNorm, {x, rstd}, of.name, of.dims, of.elem, param);
}

ValueId Builder::gather_rows(ValueId x, Group group) {
  const Value of = list_.values[x];
  const Dim rows = group == Group::kTensor ? Dim::kT : Dim::kU;
  const ValueId all = part(Kind::kGatherRows, {x}, of.name, {rows, of.dims.back()}, of.elem);
  last().group = group;
  return all;
}

ValueId Builder::reduce_rows(ValueId x, Group group) {
  const ValueId sum = part(Kind::kReduceRows, {x}, list_.values[x].name, {Dim::kP, Dim::kH});
  last().group = group;
  return sum;
}

ValueId Builder::linear(ValueId x, Dim columns, std::string_view param, std::string name,
                        bool bias) {
  return part(bias ? Kind::kLinearBias : Kind::kLinear, {x}, std::move(name), {Dim::kT, columns},
              Elem::kCompute, param);
}

ValueId Builder::finish(ValueId x, ValueId residual, std::string_view param, std::string name,
                        std::string_view norm) {
  const auto product = [&](std::string called) {
    return reduce_rows(linear(x, Dim::kH, param, std::move(called), /*bias=*/false));
  };
  const auto biased = [&](ValueId sum) {
    return config_.linear_bias ? same(Kind::kBias, {sum}, param) : sum;
  };
  if (norm.empty()) return biased(same(Kind::kAdd, {product(std::move(name)), residual}));
  const std::string of = std::string(param) + "_sum";
  return same(Kind::kAdd, {this->norm(biased(product(of)), norm, std::move(name), of).y, residual});
}

std::vector<ValueId> Builder::split_heads(ValueId qkv) {
  std::vector<ValueId> heads;
  for (const auto& [name, count] : {std::pair{"q", Dim::kA}, {"k", Dim::kKv}, {"v", Dim::kKv}})
    heads.push_back(list_.values.add(name, {Dim::kT, count, Dim::kD}));
  put(Kind::kSplit, {qkv}, heads);
  return heads;
}

std::vector<ValueId> Builder::rope(const std::vector<ValueId>& x) {
  if (positions(config_) != model::Positions::kRotary) return x;
  std::vector<ValueId> turned;
  for (const ValueId one : x) turned.push_back(list_.values.like(one, list_.values[one].name));
  put(Kind::kRope, x, turned);
  return turned;
}

ValueId Builder::attention(ValueId q, ValueId k, ValueId v, std::int64_t window) {
  const bool scored =
      window > 0 || config_.attention_softcap > 0.0 || config_.query_scale_dim > 0.0;
  const ValueId out = list_.values.add("attn_out", {Dim::kT, Dim::kQ});
  const ValueId lse = list_.values.add("attn_lse", {Dim::kT, Dim::kA}, Elem::kWide);
  put(scored ? Kind::kScoredAttention : Kind::kAttention, {q, k, v}, {out, lse});
  return out;
}

ValueId Builder::activation(ValueId x, std::string name) {
  const model::Activation kind = model::activation(config_);
  return part(kind == model::Activation::kSwiGlu  ? Kind::kSwiGlu
              : kind == model::Activation::kGeGlu ? Kind::kGeGlu
                                                  : Kind::kGelu,
              {x}, std::move(name), {Dim::kT, Dim::kF});
}

}  // namespace lockstep::parts
