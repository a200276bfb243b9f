#include "lockstep/cost/analytic/cp_method.h"

#include "lockstep/base/enum_names.h"

namespace lockstep::cost {

namespace {
constexpr EnumNames<CpMethod, 3> kContextNames = {{"ring", "gather", "ulysses"}};
}  // namespace

std::string_view to_text(CpMethod way) { return kContextNames.name_of(way); }
std::optional<CpMethod> parse_cp_method(std::string_view text) { return kContextNames.find(text); }

}  // namespace lockstep::cost
