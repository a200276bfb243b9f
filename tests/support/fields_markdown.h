// The keys of a table as sections of a Markdown page: what docs/config.md is held to.
#pragma once

#include <string>

#include "lockstep/config/fields.h"

namespace lockstep::config {

std::string fields_markdown(const FieldTable& table);

}  // namespace lockstep::config
