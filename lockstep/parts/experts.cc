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
struct Met {
  ValueId sent, counts;  // rows of each expert: that this rank sends, that it gets from each rank
  ValueId x, weights;    // of rows, by rank
};
ValueId exchange(Kind kind, std::vector<ValueId> in, const char* name, std::vector<Dim> dims,
                 Elem elem, Builder& b) {
  const ValueId made = b.part(kind, std::move(in), name, std::move(dims), elem);
  b.last().group = Group::kExpert;
  return made;
}
Met dispatched(const Rows& rows, Builder& b) {
  const ValueId sent =
      b.part(Kind::kCountRows, {rows.ends}, "row_counts", {Dim::kExperts}, Elem::kIndex);
  const ValueId counts =
      exchange(Kind::kAllToAll, {sent}, "met_counts", {Dim::kExperts}, Elem::kIndex, b);
  const ValueId x = exchange(Kind::kDispatch, {rows.x, sent, counts}, "met_rows",
                             {Dim::kMet, Dim::kH}, Elem::kCompute, b);
  const ValueId weights = exchange(Kind::kDispatch, {rows.weights, sent, counts}, "met_weights",
                                   {Dim::kMet}, Elem::kWide, b);
  return {sent, counts, x, weights};
}
ValueId at_their_experts(const Met& met, Builder& b, Written& list) {
  const ValueId places = list.values.add("met_places", {Dim::kMet, Dim::kOne}, Elem::kIndex);
  const ValueId ends = list.values.add("met_ends", {Dim::kOwnExperts}, Elem::kIndex);
  b.put(Kind::kSortMet, {met.counts}, {places, ends});
  const ValueId out = expert_mlps(
      {b.part(Kind::kTakeRows, {met.x, places}, "expert_rows", {Dim::kMet, Dim::kH}),
       b.part(Kind::kTakeWeights, {met.weights, places}, "row_weights", {Dim::kMet}, Elem::kWide),
       ends, Dim::kMet},
      b);
  const ValueId back = b.part(Kind::kReturnRows, {out, places}, "met_out", {Dim::kMet, Dim::kH});
  return exchange(Kind::kCombine, {back, met.sent, met.counts}, "expert_out", {Dim::kR, Dim::kH},
                  Elem::kCompute, b);
}

// Experts that every token meets, side by side as one MLP. A gate's weight of a token is computed
// where the router's are.
ValueId shared_experts(ValueId x, ValueId tokens, bool gated, Builder& b) {
  ValueId product = kNoValue;
  if (gated) {
    const ValueId logits = b.part(Kind::kLinear, {x}, "shared_logits", {Dim::kP, Dim::kOne},
                                  Elem::kCompute, "shared_gate");
    const ValueId own =
        b.part(Kind::kSigmoid, {logits}, "shared_weights", {Dim::kP, Dim::kOne}, Elem::kWide);
    const ValueId weights = b.gather_rows(own);
    const ValueId gate = b.linear(tokens, Dim::kShared, "shared_mlp_gate", "shared_gate", false);
    const ValueId up = b.linear(tokens, Dim::kShared, "shared_mlp_up", "shared_up", false);
    product =
        b.part(Kind::kExpertSwiGlu, {gate, up, weights}, "shared_product", {Dim::kT, Dim::kShared});
  } else {
    const ValueId wide =
        b.linear(tokens, Dim::kSharedPair, "shared_gate_up", "shared_gate_up", false);
    product = b.part(Kind::kSwiGlu, {wide}, "shared_product", {Dim::kT, Dim::kShared});
  }
  return b.linear(product, Dim::kH, "shared_down", "shared_out", false);
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
//           2412.19437, equations 17 to 20), but f counts the experts that tokens were sent to, by
//           biases and groups too; of scores by sigmoid, p is the share of the token's
//   z       1 / (L S), times the sum of squared logsumexps of the logits (ST-MoE, arXiv 2202.08906)
//
// Both are sums over sequences, so that neither microbatches nor ranks change what is meant.
ValueId mixture(ValueId x, const model::ModelConfig& config, const Sizes& sizes, Builder& b,
                Written& list) {
  ValueId logits = b.part(Kind::kLinear, {x}, "router_logits", {Dim::kP, Dim::kExperts},
                          Elem::kCompute, "router");
  if (sizes.has_z_loss) logits = b.same(Kind::kZLoss, {logits});
  ValueId own_weights = list.values.add("weights", {Dim::kP, Dim::kTop}, Elem::kWide);
  const ValueId scores = list.values.add("scores", {Dim::kP, Dim::kExperts}, Elem::kWide);
  const ValueId own_choices = list.values.add("choices", {Dim::kP, Dim::kTop}, Elem::kIndex);
  b.put(Kind::kRoute, {logits}, {own_weights, scores, own_choices});

  const bool all_share = sizes.etp == sizes.tp;
  const Group sharing = all_share ? Group::kTensor : Group::kExpertTensor;
  const ValueId tokens = b.gather_rows(x, sharing), choices = b.gather_rows(own_choices, sharing);
  const Dim rows_of = list.values[tokens].dims[0];
  if (sizes.has_aux_loss) {
    const ValueId of_sequences = all_share ? choices : b.gather_rows(own_choices);
    const ValueId counts = b.part(Kind::kCountChoices, {of_sequences}, "choice_counts",
                                  {Dim::kSequences, Dim::kExperts}, Elem::kIndex);
    const ValueId all = list.values.like(counts, "choice_counts");
    b.put(Kind::kSumRanks, {counts}, {all}).group = Group::kContext;
    own_weights = b.same(Kind::kAuxLoss, {own_weights, scores, all});
  }
  const ValueId places = list.values.add("places", {rows_of, Dim::kTop}, Elem::kIndex);
  const ValueId ends = list.values.add("ends", {Dim::kExperts}, Elem::kIndex);
  b.put(Kind::kSortRows, {choices}, {places, ends});
  Rows rows = {b.part(Kind::kTakeRows, {tokens, places}, "expert_rows", {Dim::kR, Dim::kH}),
               b.part(Kind::kTakeWeights, {b.gather_rows(own_weights, sharing), places},
                      "row_weights", {Dim::kR}, Elem::kWide),
               ends, Dim::kR};
  if (sizes.ep == 1) list.never_kept.push_back(rows.x);
  const Met met = sizes.ep > 1 ? dispatched(rows, b) : Met{};
  // While rows are under way.
  ValueId shared = kNoValue;
  if (config.moe.shared_ffn > 0) {
    const ValueId all = all_share ? tokens : b.gather_rows(x);
    shared = shared_experts(x, all, config.moe.shared_gate, b);
    if (!all_share) shared = b.reduce_rows(shared);
  }
  const ValueId out = sizes.ep > 1 ? at_their_experts(met, b, list) : expert_mlps(rows, b);
  ValueId routed = b.part(Kind::kReturnRows, {out, places}, "out", {rows_of, Dim::kH});
  if (!all_share) routed = b.reduce_rows(routed, sharing);
  const ValueId sum = shared == kNoValue ? routed : b.same(Kind::kAdd, {routed, shared});
  return all_share ? b.reduce_rows(sum) : sum;
}

}  // namespace lockstep::parts
