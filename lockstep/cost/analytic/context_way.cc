#include "lockstep/cost/analytic/context_way.h"

namespace lockstep::cost {

std::string_view to_text(ContextWay way) {
  switch (way) {
    case ContextWay::kGather:
      return "gather";
    case ContextWay::kUlysses:
      return "ulysses";
    case ContextWay::kRing:
      break;
  }
  return "ring";
}

std::optional<ContextWay> parse_context_way(std::string_view text) {
  for (const ContextWay way : kContextWays)
    if (text == to_text(way)) return way;
  return std::nullopt;
}

}  // namespace lockstep::cost
