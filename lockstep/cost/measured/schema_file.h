// JSON files that say of which schema they are (private to cost).
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::cost {

// The object in `text`, which must be of this schema: kSyntax, with the file's name, unless it is.
Result<Json> parse_file(std::string_view text, const std::string& name, std::string_view schema,
                        const std::string& remedy);

// kSyntax, for a member that cannot be read: `trouble` of a JsonFields.
Error unreadable_member(const std::string& name, const std::string& trouble);

}  // namespace lockstep::cost
