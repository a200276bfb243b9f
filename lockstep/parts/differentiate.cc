#include "lockstep/parts/differentiate.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::parts {
namespace {

// Read by a wide norm alone, whose rule is theirs too.
bool is_statistic(Kind kind) {
  return kind == Kind::kSquares || kind == Kind::kSumRanks || kind == Kind::kRstd;
}

// Of a function of its operand alone.
Kind grad_of(Kind kind) {
  return kind == Kind::kSwiGlu  ? Kind::kSwiGluGrad
         : kind == Kind::kGeGlu ? Kind::kGeGluGrad
         : kind == Kind::kGelu  ? Kind::kGeluGrad
                                : Kind::kZLossGrad;
}

class Derivation {
 public:
  explicit Derivation(Written& forward) : list_(forward), values_(forward.values) {}

  Backward run() {
    made_.d_output = values_.like(list_.output, "d_" + values_[list_.output].name);
    add_to(list_.output, made_.d_output);
    for (auto part = list_.parts.rbegin(); part != list_.parts.rend(); ++part) rule(*part);
    if (list_.input != kNoValue) made_.d_input = grad(list_.input);
    return std::move(made_);
  }

 private:
  ValueId grad_if_any(ValueId of) const {
    return static_cast<std::size_t>(of) < grads_.size() ? grads_[of] : kNoValue;
  }
  ValueId grad(ValueId of) const {
    const ValueId known = grad_if_any(of);
    LS_CHECK(known != kNoValue, "nothing reads ", values_[of].name);
    return known;
  }
  std::vector<ValueId> grads(const std::vector<ValueId>& of) const {
    std::vector<ValueId> all;
    for (const ValueId one : of) all.push_back(grad(one));
    return all;
  }
  ValueId new_like(ValueId of) { return values_.like(of, values_[of].name); }
  ValueId new_grad(ValueId of) { return values_.like(of, "d_" + values_[of].name); }
  std::vector<ValueId> new_grads(const std::vector<ValueId>& of) {
    std::vector<ValueId> all;
    for (const ValueId one : of) all.push_back(new_grad(one));
    return all;
  }
  // Of a parameter, as wide as the last dimension of `like`.
  ValueId param_grad(std::string name, ValueId like) {
    return values_.add("d_" + std::move(name), {values_[like].dims.back()}, Elem::kWide);
  }

  // A value that several parts read has the sum of their gradients.
  void add_to(ValueId x, ValueId d) {
    if (static_cast<std::size_t>(x) >= grads_.size()) grads_.resize(values_.size(), kNoValue);
    if (grads_[x] != kNoValue) {
      const ValueId sum = new_grad(x);
      made_.input.push_back({Kind::kAdd, {d, grads_[x]}, {sum}});
      d = sum;
    }
    grads_[x] = d;
  }
  void add_to(const std::vector<ValueId>& x, const std::vector<ValueId>& d) {
    for (std::size_t i = 0; i < x.size(); ++i) add_to(x[i], d[i]);
  }

  // `kind` of I, which makes the gradients of all operands of `part`, and `more`.
  void input_part(Kind kind, const Part& part, std::vector<ValueId> in,
                  const std::vector<ValueId>& more = {}) {
    std::vector<ValueId> out = new_grads(part.in);
    out.insert(out.end(), more.begin(), more.end());
    made_.input.push_back({kind, std::move(in), out, part.param, part.origin, part.group});
    add_to(part.in, out);
  }
  void weight_part(Kind kind, const Part& part, std::vector<ValueId> in) {
    made_.weight.push_back({kind, std::move(in), {}, part.param, part.origin});
  }

  void bias(const Part& part, ValueId d) {
    const ValueId sum = param_grad(std::string(part.param) + "_bias", d);
    made_.input.push_back({Kind::kBiasSum, {d}, {sum}, part.param, part.origin});
    weight_part(Kind::kAccumulateBias, part, {sum});
  }
  void linear(const Part& part, ValueId d) {
    input_part(Kind::kLinearGrad, part, {d});
    weight_part(Kind::kLinearWeight, part, {part.in[0], d});
  }
  void norm(Kind kind, const Part& part, ValueId d) {
    std::vector<ValueId> in = {d, part.in[0]};
    in.insert(in.end(), part.out.begin() + 1, part.out.end());
    const std::string name(part.param);
    std::vector<ValueId> finished = {param_grad(name, part.in[0])};
    if (kind == Kind::kLayerNormGrad) finished.push_back(param_grad(name + "_bias", part.in[0]));
    input_part(kind, part, std::move(in), finished);
    weight_part(Kind::kAccumulate, part, std::move(finished));
  }
  // Also of the sums over rows that it reads, which have no rules of their own.
  void wide_norm(const Part& part, ValueId d) {
    const ValueId x = part.in[0], rstd = part.in[1];
    const Value of = values_[x];
    const ValueId own = values_.like(rstd, of.name + "_dots"), all = new_like(own);
    const ValueId gain =
        values_.add("d_" + std::string(part.param), {of.dims[1], of.dims[2]}, Elem::kWide);
    const ValueId dx = new_grad(x);
    made_.input.push_back({Kind::kRowDots, {d, x, rstd}, {own, gain}, part.param, part.origin});
    made_.input.push_back({Kind::kSumRanks, {own}, {all}, {}, part.origin});
    made_.input.push_back({Kind::kWideNormGrad, {d, x, rstd, all}, {dx}, part.param, part.origin});
    weight_part(Kind::kAccumulate, part, {gain});
    add_to(x, dx);
  }
  void attention(const Part& part, ValueId d) {
    const bool scored = part.kind == Kind::kScoredAttention;
    std::vector<ValueId> in = {d};
    in.insert(in.end(), part.in.begin(), part.in.end());
    in.insert(in.end(), part.out.begin(), part.out.end());
    input_part(scored ? Kind::kScoredAttentionGrad : Kind::kAttentionGrad, part, std::move(in));
  }

  // Of a copy of elements to other places, or their sums: the other of the two.
  void moved(const Part& part, ValueId d) {
    const Kind back = part.kind == Kind::kTakeRows     ? Kind::kReturnRows
                      : part.kind == Kind::kReturnRows ? Kind::kTakeRows
                                                       : Kind::kReturnWeights;
    const ValueId dx = new_grad(part.in[0]);
    made_.input.push_back({back, {d, part.in[1]}, {dx}, {}, part.origin});
    add_to(part.in[0], dx);
  }
  void rows(const Part& part, ValueId d) {
    input_part(part.kind == Kind::kGatherRows ? Kind::kReduceRows : Kind::kGatherRows, part, {d});
  }
  void exchanged(const Part& part, ValueId d) {
    const ValueId dx = new_grad(part.in[0]);
    const Kind back = part.kind == Kind::kDispatch ? Kind::kCombine : Kind::kDispatch;
    made_.input.push_back(
        {back, {d, part.in[1], part.in[2]}, {dx}, {}, part.origin, Group::kExpert});
    add_to(part.in[0], dx);
  }
  void expert_linear(const Part& part, ValueId d) {
    const ValueId dx = new_grad(part.in[0]), ends = part.in[1];
    made_.input.push_back({Kind::kExpertLinearGrad, {d, ends}, {dx}, part.param, part.origin});
    weight_part(Kind::kExpertLinearWeight, part, {part.in[0], d, ends});
    add_to(part.in[0], dx);
  }

  // Of probabilities only where a loss reads them.
  void route(const Part& part, ValueId d) {
    std::vector<ValueId> in = {d, part.out[1], part.out[2]};
    if (const ValueId d_probs = grad_if_any(part.out[1]); d_probs != kNoValue)
      in.push_back(d_probs);
    input_part(Kind::kRouteGrad, part, std::move(in));
  }
  void aux_loss(const Part& part, ValueId d) {
    const ValueId probs = part.in[1], d_probs = new_grad(probs);
    made_.input.push_back({Kind::kAuxLossGrad, {probs, part.in[2]}, {d_probs}, {}, part.origin});
    add_to(part.in[0], d);
    add_to(probs, d_probs);
  }

  void rule(const Part& part) {
    // Indices have no gradients.
    if (is_statistic(part.kind) || values_[part.out[0]].elem == Elem::kIndex) return;
    const ValueId d = grad(part.out[0]);
    switch (part.kind) {
      case Kind::kRmsNorm:
        return norm(Kind::kRmsNormGrad, part, d);
      case Kind::kLayerNorm:
        return norm(Kind::kLayerNormGrad, part, d);
      case Kind::kGatherRows:
      case Kind::kReduceRows:
        return rows(part, d);
      case Kind::kLinearBias:
        bias(part, d);
        return linear(part, d);
      case Kind::kLinear:
        return linear(part, d);
      case Kind::kBias:
        bias(part, d);
        return add_to(part.in[0], d);
      case Kind::kSplit:
        return input_part(Kind::kConcat, part, grads(part.out));
      case Kind::kRope:
        return input_part(Kind::kRopeBack, part, grads(part.out));
      case Kind::kWideNorm:
        return wide_norm(part, d);
      case Kind::kAttention:
      case Kind::kScoredAttention:
        return attention(part, d);
      case Kind::kSwiGlu:
      case Kind::kGeGlu:
      case Kind::kGelu:
      case Kind::kZLoss:
        return input_part(grad_of(part.kind), part, {d, part.in[0]});
      case Kind::kAdd:
        return add_to(part.in, {d, d});
      case Kind::kScale:
        return input_part(Kind::kScale, part, {d});
      case Kind::kLookup:
        return weight_part(Kind::kLookupWeight, part, {d});
      case Kind::kPositions:
        weight_part(Kind::kPositionsWeight, part, {d});
        return add_to(part.in[0], d);
      default:
        return rule_of_mixture(part, d);
    }
  }
  void rule_of_mixture(const Part& part, ValueId d) {
    switch (part.kind) {
      case Kind::kRoute:
        return route(part, d);
      case Kind::kAuxLoss:
        return aux_loss(part, d);
      case Kind::kTakeRows:
      case Kind::kReturnRows:
      case Kind::kTakeWeights:
        return moved(part, d);
      case Kind::kDispatch:
      case Kind::kCombine:
        return exchanged(part, d);
      case Kind::kExpertLinear:
        return expert_linear(part, d);
      case Kind::kExpertSwiGlu:
        return input_part(Kind::kExpertSwiGluGrad, part, {d, part.in[0], part.in[1], part.in[2]});
      case Kind::kSigmoid:
        return input_part(Kind::kSigmoidGrad, part, {d, part.out[0]});
      default:
        LS_CHECK(false, "no derivative of ", to_text(part.kind));
    }
  }

  Written& list_;
  Values& values_;
  std::vector<ValueId> grads_;  // by value
  Backward made_;
};

}  // namespace

Backward differentiate(Written& forward) { return Derivation(forward).run(); }

}  // namespace lockstep::parts
