// The names of an enumeration whose values count from 0.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep {

template <class Enum, std::size_t kCount>
struct EnumNames {
  std::array<std::string_view, kCount> table;  // in the order of the values

  std::string_view name_of(Enum value) const {
    const auto index = static_cast<std::size_t>(value);
    LS_CHECK(index < kCount, "value ", index, " of an enumeration of ", kCount);
    return table[index];
  }
  std::optional<Enum> find(std::string_view text) const {
    const auto at = std::ranges::find(table, text);
    return at == table.end() ? std::nullopt : std::optional(static_cast<Enum>(at - table.begin()));
  }
  std::vector<std::string> names() const { return {table.begin(), table.end()}; }
};

}  // namespace lockstep
