// How ranks of a context group share sequences, and which keys a query sees.
//
// A sequence is cut into 2 c chunks for c ranks; rank r has chunks r and 2c - 1 - r, an early and a
// late one, so that all ranks have about as many pairs of queries and keys (zigzag; Llama 3, arXiv
// 2407.21783, section 3.3.2).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/enum_names.h"

namespace lockstep::model {

// How the ranks of a context group meet in attention. cost/analytic/price.h says what each costs;
// which layouts may use it is spec::contradictions()' to say.
enum class CpMethod : std::uint8_t {
  kRing,     // keys and values are exchanged while attention computes (arXiv 2310.01889)
  kGather,   // all keys and values are gathered first (Llama 3, section 3.3.2)
  kUlysses,  // heads are exchanged for positions and back (DeepSpeed Ulysses, arXiv 2309.14509)
};

// Every one once, the default first.
inline constexpr std::array kCpMethods = {CpMethod::kRing, CpMethod::kGather, CpMethod::kUlysses};

inline constexpr EnumNames<CpMethod, 3> kCpMethodNames = {{"ring", "gather", "ulysses"}};
inline std::string_view to_text(CpMethod way) { return kCpMethodNames.name_of(way); }
inline std::optional<CpMethod> parse_cp_method(std::string_view text) {
  return kCpMethodNames.find(text);
}

// Of `heads`, those of context rank `rank` while whole sequences are there: as many on every rank,
// or the one that it shares with others where ranks outnumber heads.
struct HeadRange {
  std::int64_t begin = 0, count = 0;
};
constexpr HeadRange head_range(std::int64_t heads, std::int64_t cp, std::int64_t rank) {
  return {rank * heads / cp, std::max<std::int64_t>(1, heads / cp)};
}
// Whether tp x cp ranks can be dealt whole heads, each with the head of keys that its queries read.
constexpr bool deals_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t tp,
                           std::int64_t cp) {
  const std::int64_t own = std::max<std::int64_t>(1, kv_heads / tp);
  return heads % tp == 0 && heads / tp % cp == 0 && (own % cp == 0 || cp % own == 0);
}

// A rank among those that share sequences.
struct ContextPlace {
  std::int64_t cp = 1;
  std::int64_t coord = 0;
  bool operator==(const ContextPlace&) const = default;
};

// Consecutive positions of a sequence that lie in consecutive rows of a rank.
struct PositionRun {
  std::int64_t row = 0, position = 0, count = 0;
  bool operator==(const PositionRun&) const = default;
};

// What a rank has of every sequence, by row; `seq` tokens. One run where cp is 1. REQUIRES: an even
// `seq` where it is not.
std::vector<PositionRun> position_runs(ContextPlace place, std::int64_t seq);

// Keys [begin, end) of a sequence that the query at `position` sees: itself and what lies before
// it, or of that the last ones, `window` in all (0: all).
struct KeyRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return std::max<std::int64_t>(0, end - begin); }
};
constexpr KeyRange keys_seen(std::int64_t position, std::int64_t window) {
  return {window == 0 ? 0 : std::max<std::int64_t>(0, position - window + 1), position + 1};
}

// Queries and keys, of which some queries see some keys.
struct AttentionBlock {
  PositionRun queries, keys;
};
// Those of a rank's queries and of the keys of rank `other`, `seq` tokens each; no block is left
// out in which a query sees a key. Of its own keys, those at the queries' positions come first, so
// that every query has seen a key when other blocks come.
std::vector<AttentionBlock> attention_blocks(ContextPlace place, std::int64_t other,
                                             std::int64_t seq, std::int64_t window);

// Pairs of a query before `position` and a key that it sees.
constexpr std::int64_t pairs_before(std::int64_t position, std::int64_t window) {
  const std::int64_t w = window == 0 ? position : std::min(position, window);
  return w * (w + 1) / 2 + (position - w) * w;  // the first w queries see 1, 2, ..., w keys
}

// Pairs of a query and a key that it sees.
std::int64_t pairs_seen(const std::vector<AttentionBlock>& blocks, std::int64_t window);

// Distances d >= 1 at which some rank r sees keys of rank r - d, counted around; ascending.
std::vector<std::int64_t> context_distances(std::int64_t cp, std::int64_t seq, std::int64_t window);

}  // namespace lockstep::model
