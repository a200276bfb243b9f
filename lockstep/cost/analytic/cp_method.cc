#include "lockstep/cost/analytic/cp_method.h"

namespace lockstep::cost {

std::string_view to_text(CpMethod way) {
  switch (way) {
    case CpMethod::kGather:
      return "gather";
    case CpMethod::kUlysses:
      return "ulysses";
    case CpMethod::kRing:
      break;
  }
  return "ring";
}

std::optional<CpMethod> parse_cp_method(std::string_view text) {
  for (const CpMethod way : kCpMethods)
    if (text == to_text(way)) return way;
  return std::nullopt;
}

}  // namespace lockstep::cost
