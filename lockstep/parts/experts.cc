#include <utility>

#include "lockstep/parts/families.h"

namespace lockstep::parts {
namespace {

// Side by side by expert.
struct Rows {
  ValueId x, weights, ends;
  Dim count;
};

ValueId expert_mlps(const Rows& rows, Builder& b) {
  const auto product = [&](ValueId of, const char* param, const char* name, Dim columns) {
    return b.part(Kind::kExpertLinear, {of, rows.ends}, name, {rows.count, columns}, Elem::kCompute,
                  param);
  };
  const ValueId gate = product(rows.x, "experts_gate", "gate_up", Dim::kX);
  const ValueId up = product(rows.x, "experts_up", "gate_up", Dim::kX);
  const ValueId weighted =
      b.part(Kind::kExpertSwiGlu, {gate, up, rows.weights}, "product", {rows.count, Dim::kX});
  return product(weighted, "experts_down", "expert_out", Dim::kH);
}

// The same where other ranks have some of the experts: rows go to the ranks whose experts they
// meet, which order what they get from all ranks by expert, then by rank, and back again. How many
// go where is exchanged first, so the sequence of collectives does not depend on it.
ValueId at_their_experts(const Rows& rows, Builder& b, Written& list) {
  const ValueId sent =
      b.part(Kind::kCountRows, {rows.ends}, "row_counts", {Dim::kExperts}, Elem::kIndex);
  const auto exchange = [&](Kind kind, std::vector<ValueId> in, const char* name,
                            std::vector<Dim> dims, Elem elem) {
    const ValueId made = b.part(kind, std::move(in), name, std::move(dims), elem);
    b.last().group = Group::kExpert;
    return made;
  };
  const ValueId met =
      exchange(Kind::kAllToAll, {sent}, "met_counts", {Dim::kExperts}, Elem::kIndex);
  const ValueId x = exchange(Kind::kDispatch, {rows.x, sent, met}, "met_rows", {Dim::kMet, Dim::kH},
                             Elem::kCompute);
  const ValueId weights =
      exchange(Kind::kDispatch, {rows.weights, sent, met}, "met_weights", {Dim::kMet}, Elem::kWide);
  const ValueId places = list.values.add("met_places", {Dim::kMet, Dim::kOne}, Elem::kIndex);
  const ValueId ends = list.values.add("met_ends", {Dim::kOwnExperts}, Elem::kIndex);
  b.put(Kind::kSortMet, {met}, {places, ends});
  const ValueId out = expert_mlps(
      {b.part(Kind::kTakeRows, {x, places}, "expert_rows", {Dim::kMet, Dim::kH}),
       b.part(Kind::kTakeWeights, {weights, places}, "row_weights", {Dim::kMet}, Elem::kWide), ends,
       Dim::kMet},
      b);
  const ValueId back = b.part(Kind::kReturnRows, {out, places}, "met_out", {Dim::kMet, Dim::kH});
  return exchange(Kind::kCombine, {back, sent, met}, "expert_out", {Dim::kR, Dim::kH},
                  Elem::kCompute);
}

}  // namespace

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
  Rows rows = {b.part(Kind::kTakeRows, {tokens, places}, "expert_rows", {Dim::kR, Dim::kH}),
               b.part(Kind::kTakeWeights, {b.gather_rows(own_weights), places}, "row_weights",
                      {Dim::kR}, Elem::kWide),
               ends, Dim::kR};
  if (sizes.ep == 1) {
    list.never_kept.push_back(rows.x);
    return b.part(Kind::kReturnRows, {expert_mlps(rows, b), places}, "out", {Dim::kT, Dim::kH});
  }
  const ValueId out = at_their_experts(rows, b, list);
  return b.part(Kind::kReturnRows, {out, places}, "out", {Dim::kT, Dim::kH});
}

}  // namespace lockstep::parts
