#include "lockstep/parts/value.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::parts {

Sizes::Sizes(const model::ModelConfig& c, const model::UnitSizes& sizes)
    : width(sizes.width()),
      wide(sizes.wide()),
      seq(sizes.seq),
      tp(sizes.tp),
      cp(sizes.cp),
      ep(sizes.ep),
      etp(sizes.expert_ranks()),
      threads(sizes.threads),
      context(sizes.context),
      plus_one(c.norm == model::NormKind::kRmsNormPlusOne),
      packs_keys(sizes.packs_keys),
      shares_rows(sizes.sequence_parallel && sizes.tp > 1),
      overlap(sizes.tp_overlap),
      capped(c.attention_softcap > 0),
      has_aux_loss(sizes.aux_loss_coeff > 0),
      has_z_loss(sizes.z_loss_coeff > 0),
      on_device(sizes.kernels == model::Kernels::kDevice),
      moe(c.moe) {
  const std::int64_t tokens = sizes.tokens();
  LS_CHECK(c.heads % tp == 0 && (c.kv_heads % tp == 0 || tp % c.kv_heads == 0) && c.ffn % tp == 0 &&
               c.moe.expert_ffn % etp == 0 && c.moe.shared_ffn % tp == 0 &&
               (!shares_rows || tokens % tp == 0),
           "tensor degree ", tp, " does not divide ", c.name);
  LS_CHECK(etp == tp || (tp % etp == 0 && shares_rows), "experts on ", etp, " of ", tp,
           " tensor ranks that have all tokens");
  LS_CHECK(c.moe.experts % ep == 0, ep, " ranks do not divide the experts of ", c.name);
  LS_CHECK(context != model::CpMethod::kUlysses || model::deals_heads(c.heads, c.kv_heads, tp, cp),
           "heads of ", c.name, " cannot be dealt to ", tp, " x ", cp, " ranks");
  Sizes& at = *this;
  at[Dim::kT] = tokens;
  at[Dim::kP] = shares_rows ? tokens / tp : tokens;
  at[Dim::kH] = c.hidden;
  at[Dim::kA] = c.heads / tp;
  at[Dim::kKv] = std::max<std::int64_t>(c.kv_heads / tp, 1);
  at[Dim::kD] = c.head_dim;
  at[Dim::kQ] = at[Dim::kA] * c.head_dim;
  at[Dim::kK] = at[Dim::kKv] * c.head_dim;
  at[Dim::kW] = at[Dim::kQ] + 2 * at[Dim::kK];
  at[Dim::kF] = c.ffn / tp;
  at[Dim::kG] = at[Dim::kF] * (activation(c) == model::Activation::kGelu ? 1 : 2);
  at[Dim::kV] = (c.vocab + tp - 1) / tp;
  at[Dim::kC] = sizes.head_chunk > 0 ? sizes.head_chunk : tokens;
  at[Dim::kRanks] = tp;
  at[Dim::kThree] = 3;
  at[Dim::kN] = tokens * cp;
  at[Dim::kKeys] = 2 * at[Dim::kK];
  at[Dim::kShareA] = model::head_range(at[Dim::kA], cp, 0).count;
  at[Dim::kShareKv] = model::head_range(at[Dim::kKv], cp, 0).count;
  at[Dim::kShareQ] = at[Dim::kShareA] * c.head_dim;
  at[Dim::kShareK] = at[Dim::kShareKv] * c.head_dim;
  at[Dim::kShareW] = at[Dim::kShareQ] + 2 * at[Dim::kShareK];
  at[Dim::kExperts] = c.moe.experts;
  at[Dim::kTop] = c.moe.top_k;
  at[Dim::kU] = sizes.routed_tokens();
  at[Dim::kR] = at[Dim::kU] * c.moe.top_k;
  at[Dim::kX] = c.moe.expert_ffn / etp;
  at[Dim::kSequences] = sizes.batch;
  at[Dim::kOwnExperts] = c.moe.experts / ep;
  at[Dim::kMet] = at[Dim::kR];
  at[Dim::kOne] = 1;
  at[Dim::kShared] = c.moe.shared_ffn / tp;
  at[Dim::kSharedPair] = 2 * at[Dim::kShared];
  own_met = at[Dim::kR] / ep;
}

Sizes Sizes::of_whole_sequences() const {
  Sizes at = *this;
  at.seq = seq_of(Dim::kN);
  at[Dim::kT] = at[Dim::kN];
  at[Dim::kA] = at[Dim::kShareA];
  at[Dim::kKv] = at[Dim::kShareKv];
  at[Dim::kQ] = at[Dim::kShareQ];
  at[Dim::kK] = at[Dim::kShareK];
  at[Dim::kW] = at[Dim::kShareW];
  return at;
}

std::int64_t Sizes::width_of(Elem elem) const {
  switch (elem) {
    case Elem::kCompute:
      return width;
    case Elem::kWide:
      return wide;
    case Elem::kIndex:
      return 8;
    case Elem::kFlag:
      break;
  }
  return 1;
}

std::int64_t Sizes::elements(const Value& value) const {
  std::int64_t product = 1;
  for (const Dim dim : value.dims) product *= (*this)[dim];
  return product;
}

}  // namespace lockstep::parts
