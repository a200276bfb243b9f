#include "lockstep/parts/families.h"

namespace lockstep::parts {

// Rows: a token and one of the experts that it is sent to, side by side by expert. What decides
// about them is computed of a rank's own tokens and gathered with those, so that the gradients of
// the router are partial where those of norms are.
ValueId mixture(ValueId x, Builder& b, Written& list) {
  const ValueId logits = b.part(Kind::kLinear, {x}, "router_logits", {Dim::kP, Dim::kExperts},
                                Elem::kCompute, "router");
  const ValueId own_weights = list.values.add("weights", {Dim::kP, Dim::kTop}, Elem::kWide);
  const ValueId probs = list.values.add("probs", {Dim::kP, Dim::kExperts}, Elem::kWide);
  const ValueId own_choices = list.values.add("choices", {Dim::kP, Dim::kTop}, Elem::kIndex);
  b.put(Kind::kRoute, {logits}, {own_weights, probs, own_choices});

  const ValueId tokens = b.gather_rows(x), choices = b.gather_rows(own_choices);
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
