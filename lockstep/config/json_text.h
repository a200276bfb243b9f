// Reads JSON into a Value tree with positions. The JSON library at hand keeps no positions, and
// without them a diagnostic could not point.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/config/document.h"

namespace lockstep::config {

// The tree of `text`, whose top must be an object; or nothing and one kSyntax diagnostic.
std::optional<Value> parse_json_text(std::string_view text, const std::string& file,
                                     Report& report);

}  // namespace lockstep::config
