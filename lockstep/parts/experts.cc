#include "lockstep/parts/families.h"

namespace lockstep::parts {

// Rows: a token and one of the experts that it is sent to, side by side by expert. What decides
// about them is computed of a rank's own tokens and gathered with those, so that the gradients of
// the router are partial where those of norms are.
//
// Two losses keep routers in shape; their gradients join where these parts stand, and nothing else
// depends on them (Megatron's seq_aux_loss and z-loss). Of a step of S sequences of L tokens, with
// f the choices of expert e in a sequence and p a token's probability of it:
//
//   aux     e / (top L^2 S), times the sum of f p over tokens and experts: DeepSeek-V3's (arXiv
//           2412.19437, equations 17 to 20), but p is not normalized a second time
//   z       1 / (L S), times the sum of squared logsumexps of the logits (ST-MoE, arXiv 2202.08906)
//
// Both are sums over sequences, so that neither microbatches nor ranks change what is meant.
ValueId mixture(ValueId x, const Sizes& sizes, Builder& b, Written& list) {
  ValueId logits = b.part(Kind::kLinear, {x}, "router_logits", {Dim::kP, Dim::kExperts},
                          Elem::kCompute, "router");
  if (sizes.has_z_loss) logits = b.same(Kind::kZLoss, {logits});
  ValueId own_weights = list.values.add("weights", {Dim::kP, Dim::kTop}, Elem::kWide);
  const ValueId probs = list.values.add("probs", {Dim::kP, Dim::kExperts}, Elem::kWide);
  const ValueId own_choices = list.values.add("choices", {Dim::kP, Dim::kTop}, Elem::kIndex);
  b.put(Kind::kRoute, {logits}, {own_weights, probs, own_choices});

  const ValueId tokens = b.gather_rows(x), choices = b.gather_rows(own_choices);
  if (sizes.has_aux_loss) {
    const ValueId counts = b.part(Kind::kCountChoices, {choices}, "choice_counts",
                                  {Dim::kSequences, Dim::kExperts}, Elem::kIndex);
    const ValueId all = list.values.like(counts, "choice_counts");
    b.put(Kind::kSumRanks, {counts}, {all}).group = Group::kContext;
    own_weights = b.same(Kind::kAuxLoss, {own_weights, probs, all});
  }
  const ValueId places = list.values.add("places", {Dim::kT, Dim::kTop}, Elem::kIndex);
  const ValueId ends = list.values.add("ends", {Dim::kExperts}, Elem::kIndex);
  b.put(Kind::kSortRows, {choices}, {places, ends});
  const ValueId rows = b.part(Kind::kTakeRows, {tokens, places}, "expert_rows", {Dim::kR, Dim::kH});
  list.never_kept.push_back(rows);
  const ValueId weights = b.part(Kind::kTakeWeights, {b.gather_rows(own_weights), places},
                                 "row_weights", {Dim::kR}, Elem::kWide);

  const auto product = [&](ValueId of, const char* param, const char* name, Dim columns) {
    return b.part(Kind::kExpertLinear, {of, ends}, name, {Dim::kR, columns}, Elem::kCompute, param);
  };
  const ValueId gate = product(rows, "experts_gate", "gate_up", Dim::kX);
  const ValueId up = product(rows, "experts_up", "gate_up", Dim::kX);
  const ValueId weighted =
      b.part(Kind::kExpertSwiGlu, {gate, up, weights}, "product", {Dim::kR, Dim::kX});
  const ValueId out = product(weighted, "experts_down", "expert_out", Dim::kH);
  return b.part(Kind::kReturnRows, {out, places}, "out", {Dim::kT, Dim::kH});
}

}  // namespace lockstep::parts
