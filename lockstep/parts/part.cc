#include "lockstep/parts/part.h"

#include <algorithm>
#include <array>

#include "lockstep/model/flops.h"

namespace lockstep::parts {
namespace {

constexpr KindRow collective(std::string_view name, InPlace in_place = InPlace::kNever) {
  return {.name = name, .in_place = in_place, .collective = true};
}
constexpr KindRow norm(std::string_view name, Kind again) { return {.name = name, .again = again}; }

constexpr std::array kRows = {
    norm("rms_norm", Kind::kRmsNormAgain),
    norm("layer_norm", Kind::kLayerNormAgain),
    collective("gather_rows"),
    collective("reduce_rows"),
    KindRow{"linear"},
    KindRow{"linear_bias"},
    KindRow{"bias", InPlace::kAlways},
    KindRow{.name = "split", .view = true},
    KindRow{"rope", InPlace::kEach},
    KindRow{"squares"},
    collective("sum_ranks"),
    KindRow{"rstd", InPlace::kAlways},
    KindRow{"wide_norm"},
    KindRow{"attention"},
    KindRow{"scored_attention"},
    KindRow{"swiglu"},
    KindRow{"geglu"},
    KindRow{"gelu"},
    KindRow{"add", InPlace::kAlways},
    KindRow{"lookup"},
    KindRow{"scale", InPlace::kAlways},
    KindRow{"positions", InPlace::kAlways},
    KindRow{"route"},
    KindRow{"sort_rows"},
    KindRow{.name = "take_rows", .moves = true},
    KindRow{"return_rows"},
    KindRow{.name = "take_weights", .moves = true},
    KindRow{.name = "return_weights", .moves = true},
    KindRow{"expert_linear"},
    KindRow{"expert_swiglu"},
    KindRow{"sigmoid"},
    KindRow{"count_rows"},
    KindRow{"sort_met"},
    KindRow{.name = "dispatch", .collective = true, .moves = true},
    collective("combine"),
    KindRow{"count_choices"},
    KindRow{"aux_loss"},
    KindRow{"z_loss"},
    KindRow{.name = "rms_norm_grad", .in_place = InPlace::kAlways, .is_new_on_device = true},
    // LibTorch's makes its own
    KindRow{.name = "layer_norm_grad", .in_place = InPlace::kNarrow, .is_new_on_device = true},
    KindRow{"linear_grad"},
    KindRow{"linear_weight"},
    KindRow{"bias_sum"},
    KindRow{"accumulate"},
    KindRow{"accumulate_bias"},
    KindRow{"rope_back", InPlace::kEach},
    KindRow{"row_dots"},
    KindRow{"wide_norm_grad", InPlace::kAlways},
    KindRow{"attention_grad"},
    KindRow{"scored_attention_grad"},
    KindRow{"swiglu_grad"},
    KindRow{"geglu_grad"},
    KindRow{"gelu_grad", InPlace::kAlways},
    KindRow{"route_grad"},
    KindRow{"expert_linear_grad"},
    KindRow{"expert_linear_weight"},
    KindRow{"expert_swiglu_grad"},
    KindRow{"sigmoid_grad"},
    KindRow{"aux_loss_grad"},
    KindRow{"z_loss_grad", InPlace::kAlways},
    KindRow{"concat"},
    KindRow{.name = "lookup_weight", .spoils = true},  // rows of other ranks' tokens
    KindRow{"positions_weight"},
    KindRow{"rms_norm_again"},
    KindRow{"layer_norm_again"},
    KindRow{"linear_add"},
    collective("all_gather"),
    collective("reduce_scatter"),
    collective("all_reduce", InPlace::kAlways),
    KindRow{"wait"},
    KindRow{"join_keys"},
    collective("exchange"),
    KindRow{"block_attention"},
    KindRow{"more_attention", InPlace::kEach},
    KindRow{"block_attention_grad"},
    KindRow{"more_attention_grad", InPlace::kAlways},
    KindRow{"split_keys"},
    KindRow{"cached_attention"},
    KindRow{.name = "deal_heads", .moves = true},
    KindRow{.name = "all_to_all", .collective = true, .moves = true},
    KindRow{.name = "whole_sequences", .moves = true},
    KindRow{"deal_tokens"},
    KindRow{"all_heads"},
    KindRow{"reserve"},
    KindRow{"logits"},
    KindRow{"cap", InPlace::kAlways},
    KindRow{.name = "entropy", .spoils = true},
    KindRow{.name = "entropy_grad", .in_place = InPlace::kNotNarrow, .spoils = true},
    KindRow{"token_rows"},
    KindRow{"softmax", InPlace::kAlways},
    KindRow{.name = "totals", .spoils = true},
    KindRow{"add_losses"},
    KindRow{"minus_one", InPlace::kAlways},
    KindRow{"scale_rows", InPlace::kAlways},
    KindRow{"cap_grad", InPlace::kAlways},
    KindRow{"round"},
    KindRow{"logits_grad", InPlace::kAlways},
};
static_assert(kRows.size() == static_cast<std::size_t>(Kind::kLogitsGrad) + 1);

// That a query of a context rank sees among a part's keys, over all ranks and queries.
double mean_keys(const Part& part, const Sizes& sizes) {
  std::int64_t pairs = 0;
  for (std::int64_t rank = 0; rank < sizes.cp; ++rank)
    for (const std::int64_t other : key_owners(part, {sizes.cp, rank}))
      pairs += pairs_seen(model::attention_blocks({sizes.cp, rank}, other, sizes.seq, sizes.window),
                          sizes.window);
  return static_cast<double>(pairs) / static_cast<double>(sizes.cp * sizes.seq);
}

}  // namespace

std::vector<std::int64_t> key_owners(const Part& part, model::ContextPlace place) {
  if (part.distance != kAllRanks) return {(place.coord + place.cp - part.distance) % place.cp};
  std::vector<std::int64_t> owners = {place.coord};  // first, so that every query has seen a key
  for (std::int64_t rank = 0; rank < place.cp; ++rank)
    if (rank != place.coord) owners.push_back(rank);
  return owners;
}

const KindRow& row_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)]; }

double flops_of(const Part& part, const Values& values, const Sizes& sizes) {
  const auto elements = [&](ValueId id) { return static_cast<double>(sizes.elements(values[id])); };
  const auto columns = [&](ValueId id) {
    return static_cast<double>(sizes[values[id].dims.back()]);
  };
  const auto attention = [&](ValueId q) {
    const std::int64_t seq = sizes.seq_of(values[q].dims[0]);
    return 4.0 * elements(q) * model::mean_keys(seq, sizes.window, model::Mask::kCausal);
  };
  const auto block = [&](ValueId q) { return 4.0 * elements(q) * mean_keys(part, sizes); };
  switch (part.kind) {
    case Kind::kLinear:
    case Kind::kLinearBias:
    case Kind::kLinearAdd:
    case Kind::kLogits:
    case Kind::kExpertLinear:
      return 2.0 * elements(part.out[0]) * columns(part.in[0]);
    case Kind::kLinearGrad:
    case Kind::kExpertLinearGrad:
      return 2.0 * elements(part.in[0]) * columns(part.out[0]);
    case Kind::kLogitsGrad:
    case Kind::kLinearWeight:
    case Kind::kExpertLinearWeight:
      return 2.0 * elements(part.in[1]) * columns(part.in[0]);
    case Kind::kAttention:
    case Kind::kScoredAttention:
      return attention(part.in[0]);
    case Kind::kAttentionGrad:
    case Kind::kScoredAttentionGrad:
      return 2.0 * attention(part.in[1]);
    case Kind::kBlockAttention:
      return block(part.in[0]);
    case Kind::kMoreAttention:
      return block(part.in[2]);
    case Kind::kBlockAttentionGrad:
      return 2.0 * block(part.in[1]);
    case Kind::kMoreAttentionGrad:
      return 2.0 * block(part.in[2]);
    default:
      return 0.0;
  }
}

std::int64_t group_size(const Part& part, const Sizes& sizes) {
  switch (part.group) {
    case Group::kTensor:
      return sizes.tp;
    case Group::kContext:
      return sizes.cp;
    case Group::kExpertTensor:
      return sizes.etp;
    case Group::kExpert:
      break;
  }
  return sizes.ep;
}

std::int64_t collective_bytes(const Part& part, const Values& values, const Sizes& sizes) {
  const Value& in = values[part.in[0]];
  if (part.kind == Kind::kDispatch || part.kind == Kind::kCombine) {
    const std::int64_t rows = sizes[in.dims[0]];
    return rows == 0 ? 0 : sizes.bytes(in) / rows * (rows - sizes.own_met);
  }
  const std::int64_t all = std::max(sizes.elements(in), sizes.elements(values[part.out[0]]));
  const std::int64_t ranks = group_size(part, sizes);
  const std::int64_t padded =
      part.kind == Kind::kExchange ? all : (all + ranks - 1) / ranks * ranks;
  return padded * sizes.width_of(in.elem);
}

}  // namespace lockstep::parts
