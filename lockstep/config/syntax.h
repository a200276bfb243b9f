// Between the text of a file and the tree document.h makes of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/config/diagnostic.h"
#include "lockstep/config/document.h"

namespace lockstep::config {

// Reads JSON into a Value tree with positions. The JSON library at hand keeps no positions, and
// without them a diagnostic could not point.

// The tree of `text`, whose top must be an object; or nothing and one kSyntax diagnostic.
std::optional<Value> parse_json_text(std::string_view text, const std::string& file,
                                     Report& report);

// Says in the user's terms why a TOML file does not parse. The TOML library gives a position and a
// sentence about its own state; the line itself usually shows what was meant.
//
// `text` is the whole file; `line` and `column` (from 1, in code points) are where the library
// stopped, `reason` is its own sentence, used only when nothing better is known.
Diagnostic explain_toml_error(std::string_view text, const std::string& file, int line, int column,
                              std::string_view reason);

// The first place where the brackets and dots of one setting or header nest deeper than `limit`, or
// npos. For text that the TOML library has not read: it takes stack for each level. In linear time.
std::size_t find_deep_nesting(std::string_view text, int limit);

}  // namespace lockstep::config
