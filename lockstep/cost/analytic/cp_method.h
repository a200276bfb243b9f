// How the ranks of one sequence meet in attention. price.h says what each costs; which layouts may
// use it is spec::contradictions()' to say.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/base/enum_names.h"

namespace lockstep::cost {

enum class CpMethod : std::uint8_t {
  kRing,     // blocks of keys and values go round while attention computes (arXiv 2310.01889)
  kGather,   // all keys and values are gathered first (Llama 3, arXiv 2407.21783, section 3.3.2)
  kUlysses,  // heads are exchanged for positions and back (DeepSpeed Ulysses, arXiv 2309.14509)
};

// Every one once, the default first.
inline constexpr std::array kCpMethods = {CpMethod::kRing, CpMethod::kGather, CpMethod::kUlysses};

inline constexpr EnumNames<CpMethod, 3> kCpMethodNames = {{"ring", "gather", "ulysses"}};
inline std::string_view to_text(CpMethod way) { return kCpMethodNames.name_of(way); }
inline std::optional<CpMethod> parse_cp_method(std::string_view text) {
  return kCpMethodNames.find(text);
}

}  // namespace lockstep::cost
