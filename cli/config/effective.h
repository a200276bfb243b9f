// What a run file comes to, with its defaults and what follows from other keys.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/document.h"
#include "lockstep/config/fields.h"

namespace lockstep::cli {

// One key with the value it ends up with; none for a key that is required and not set.
struct Shown {
  const config::Field* field = nullptr;
  std::optional<config::Value> value;
  config::Span span;  // where it was set, if it was
};

// The keys that have a value or need one, in the order of spec::run_fields().
std::vector<Shown> effective(const config::Document& document);

// As a run file. What `remark` says of a key stands behind it as a comment.
std::string toml_text(const std::vector<Shown>& shown,
                      const std::function<std::string(const Shown&)>& remark);

}  // namespace lockstep::cli
