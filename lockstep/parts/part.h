// A part: one step of a unit's pass, a kernel or a collective. A pass is a list of them.
//
// Families write forward lists (builder.h, block.cc, head.cc); the other passes are derived, by one
// small function after the other: differentiate, lower, keep, overlap, place. Readers never ask
// which family a list is of. A new kind is a row of the table below, its derivative in
// differentiate.cc, and what it takes besides its outputs in kernels.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/parts/value.h"

namespace lockstep::parts {

enum class Kind : std::uint8_t {
  // What families write.
  kRmsNorm,          // x -> y, rstd
  kLayerNorm,        // x -> y, rstd, mean
  kGatherRows,       // P rows of each tensor rank -> all T; the derivative of the next
  kReduceRows,       // summands of T rows -> P rows of their sum
  kLinear,           // x -> x weight
  kLinearBias,       // x -> x weight + bias, rounded once
  kBias,             // x -> x + bias
  kSplit,            // w -> slices of its columns, of whole heads
  kRope,             // any number of queries and keys -> the same, turned
  kSquares,          // x -> sum of the squares of each token
  kSumRanks,         // numbers of each token -> their sums over the tensor ranks
  kRstd,             // sums of squares over all ranks -> rstd
  kWideNorm,         // x, rstd -> y: a norm over all heads of a token
  kAttention,        // q, k, v -> out, lse
  kScoredAttention,  // the same with a window, capped scores or another scale
  kSwiGlu,           // gate and up -> product
  kGeGlu,
  kGelu,
  kAdd,        // x, residual -> sum
  kLookup,     // -> rows of the embedding
  kScale,      // x -> x times the root of its width; its own derivative
  kPositions,  // x -> x + rows of the table of positions
  // A mixture of experts (experts.cc). R rows: a token and one of its experts, by expert.
  kRoute,        // router's logits -> weights of a token's experts, all scores, these experts
  kSortRows,     // experts of tokens -> the row of each, the end of each expert's rows
  kTakeRows,     // x of tokens, places of rows -> x of rows; the derivative of the next
  kReturnRows,   // x of rows, places of rows -> sums of a token's
  kTakeWeights,  // weights of tokens' experts, places of rows -> of rows; of the next
  kReturnWeights,
  kExpertLinear,  // x of rows, ends -> x weight of the row's expert
  kExpertSwiGlu,  // gate, up, weight of each row -> weighted product
  kSigmoid,       // logits -> weights
  // Among ranks that share experts.
  kCountRows,     // ends -> rows of each expert
  kSortMet,       // rows from each rank to each own expert -> places by expert, ends
  kDispatch,      // rows by expert, their counts, those of rows met -> rows met, by rank
  kCombine,       // rows met, by rank, both counts -> rows by expert; the derivative of kDispatch
  kCountChoices,  // experts of tokens -> how often each sequence chose each
  kAuxLoss,       // weights, scores, those counts -> the weights; has a derivative alone
  kZLoss,         // logits -> the logits; as kAuxLoss
  // What derivatives add. d is the gradient of the first output.
  kRmsNormGrad,    // d, x, rstd -> dx, d gain
  kLayerNormGrad,  // d, x, rstd, mean -> dx, d gain, d bias
  kLinearGrad,     // d -> dx
  kLinearWeight,   // x, d: adds to the weight's gradient
  kBiasSum,        // d -> d bias
  kAccumulate,     // finished gradients of a norm: adds them to those of its parameters
  kAccumulateBias,
  kRopeBack,       // like kRope
  kRowDots,        // d, x, rstd of a wide norm -> each token's sum of gain d x, d gain
  kWideNormGrad,   // d, x, rstd, those sums over all ranks -> dx
  kAttentionGrad,  // d, q, k, v, out, lse -> dq, dk, dv
  kScoredAttentionGrad,
  kSwiGluGrad,  // d, x -> dx
  kGeGluGrad,
  kGeluGrad,
  kRouteGrad,           // d weights, scores, experts, maybe d shares of scores -> d logits
  kExpertLinearGrad,    // d, ends -> dx
  kExpertLinearWeight,  // x, d, ends: adds to the gradients of the weights
  kExpertSwiGluGrad,    // d, gate, up, weight -> d gate, d up, d weight
  kSigmoidGrad,         // d, weights -> d logits
  kAuxLossGrad,         // scores, counts of choices -> d shares of scores; adds to the loss
  kZLossGrad,           // d logits, logits -> with the loss's
  kConcat,              // what kSplit made -> all columns
  kLookupWeight,        // d: adds to the gradient of the embedding
  kPositionsWeight,
  // What rewrites leave.
  kRmsNormAgain,    // x, rstd -> y
  kLayerNormAgain,  // x, rstd, mean -> y
  kLinearAdd,       // x, residual -> residual + x weight, rounded once
  kAllGather,  // begun here; until a wait for its output is behind, nobody may touch its memory
  kReduceScatter,
  kAllReduce,
  kWait,  // output of a collective, and its operand if that has other memory
  // Attention over a context group (context.cc). Keys stand for keys and values, side by side.
  kJoinKeys,        // k, v -> keys
  kExchange,        // keys -> those of the rank `distance` before this one, which has this one's
  kBlockAttention,  // q, keys -> out, lse
  kMoreAttention,   // out, lse, q, keys -> the same over these keys too
  kBlockAttentionGrad,  // d, q, keys, out, lse -> dq, dkeys
  kMoreAttentionGrad,   // dq, d, q, keys, out, lse -> dq with these keys', dkeys
  kSplitKeys,           // dkeys -> dk, dv
  // Attention of tokens that continue sequences, whose keys are in a cache.
  kCachedAttention,  // q, k, v: keys go behind those of earlier tokens -> out, lse over all of them
  // Heads exchanged for positions (ulysses.cc). Whole: all tokens of sequences, in the order of
  // their positions, of this rank's share of the heads. Pieces: for or from each context rank.
  kDealHeads,       // any number of T rows -> pieces for the ranks that have the heads
  kAllToAll,        // pieces for ranks -> pieces from ranks
  kWholeSequences,  // pieces from the ranks that have the tokens -> whole ones
  kDealTokens,      // any number of whole ones -> pieces for the ranks that have the tokens
  kAllHeads,        // pieces from the ranks that have the heads -> T rows; copies of a head add up
  // The head's loss, a chunk of rows at a time (head.cc).
  kReserve,      // -> memory that later parts fill
  kLogits,       // rows -> logits of a chunk
  kCap,          // logits -> capped ones, and for a gradient the slope of each
  kEntropy,      // logits
  kEntropyGrad,  // logits -> d logits
  kTokenRows,    // -> where labels lie in this rank's vocabulary, whether elsewhere
  kSoftmax,      // logits, row, elsewhere -> exponentials below each row's greatest; greatest,
                 // total and label's logit of each row
  kTotals,       // those of all ranks -> log of each label's probability, share of each row
  kAddLosses,    // log probabilities
  kMinusOne,     // exponentials, share, row, elsewhere -> softmax less one at the label
  kScaleRows,    // d logits -> 0 where there is no label
  kCapGrad,      // d of capped logits, slope -> d logits
  kRound,        // what is wide, narrow
  kLogitsGrad,   // rows' gradient so far, d logits -> with the chunk's
};

// Whether output 0 may take the memory of operand 0, if nothing reads that later.
enum class InPlace : std::uint8_t {
  kNever,
  kAlways,
  kEach,       // and every other output that of the operand beside it
  kNarrow,     // where elements are narrower than f32
  kNotNarrow,  // where they are not
};

struct KindRow {
  std::string_view name;
  InPlace in_place = InPlace::kNever;
  bool collective = false;
  bool view = false;               // outputs are slices of operand 0
  bool moves = false;              // outputs are the operands' elements, elsewhere
  bool spoils = false;             // may overwrite operand 0, which nobody may read behind it
  std::optional<Kind> again = {};  // makes output 0 from the operands and the other outputs
  bool is_new_on_device = false;   // a device's kernel takes no operand's memory
};

const KindRow& row_of(Kind kind);
inline std::string_view to_text(Kind kind) { return row_of(kind).name; }

// Whose ranks a collective is of.
enum class Group : std::uint8_t {
  kTensor,
  kContext,
  kExpert,
  kExpertTensor,  // tensor ranks that share an expert, where others do not
};

// A distance of keys: those of all ranks, one after the other.
inline constexpr std::int64_t kAllRanks = -1;

struct Part {
  Kind kind = Kind::kAdd;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  std::string_view param = {};  // of the unit: "qkv"; lives as long as the program
  int origin = -1;              // the forward part that it is, repeats or differentiates
  Group group = Group::kTensor;
  std::int64_t distance = 0;  // of keys: to the rank whose they are, counted down and around
  bool repeats = false;  // such parts, side by side, run once for every chunk of Dim::kC rows of T
};
using Parts = std::vector<Part>;

// Whether it writes or adds to the gradient of a parameter.
inline bool writes_gradient(const Part& part) { return part.out.empty() && !part.param.empty(); }

// The context ranks whose keys a part of attention reads, in the order in which it does.
std::vector<std::int64_t> key_owners(const Part& part, model::ContextPlace place);

// Floating-point operations by the convention of model/flops.h, causal: those of matrix products
// and of attention, a gradient of attention counting twice.
double flops_of(const Part& part, const Values& values, const Sizes& sizes);

// Ranks of a collective.
std::int64_t group_size(const Part& part, const Sizes& sizes);
// Bytes of the buffer that holds all ranks' elements of a collective, padded to equal pieces; of
// rows dispatched or combined, what other ranks get.
std::int64_t collective_bytes(const Part& part, const Values& values, const Sizes& sizes);

}  // namespace lockstep::parts
