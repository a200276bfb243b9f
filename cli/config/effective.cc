#include "cli/config/effective.h"

#include <algorithm>
#include <utility>

#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

// What follows from other settings.
std::optional<config::Value> derived(const std::string& path,
                                     const std::optional<spec::Spec>& spec) {
  if (!spec) return std::nullopt;
  const mesh::Degrees& degrees = spec->layout.degrees;
  config::Value value;
  value.kind = config::ValueKind::kInt;
  value.origin = config::Origin::kDerived;
  if (path == "layout.dp") {
    value.integer = degrees.dp;
  } else if (path == "layout.dp_shard") {
    value.integer = degrees.dp_shard.value_or(degrees.dp);
  } else if (path == "data.seed" && !spec->data.files.empty()) {
    value.integer = spec->data.seed;
  } else if (path == "layout.reduce") {
    value.kind = config::ValueKind::kString;
    value.text = spec::name_of(spec->layout.reduce);
  } else {
    return std::nullopt;
  }
  return value;
}

std::string line_of(const Shown& shown) {
  const std::string key = shown.field->path.substr(shown.field->path.rfind('.') + 1);
  return shown.value ? key + " = " + to_text(*shown.value)
                     : "# " + key + " is required and not set";
}

}  // namespace

std::vector<Shown> effective(const config::Document& document) {
  std::vector<Shown> shown;
  const config::FieldTable& table = spec::run_fields();
  config::Report unread;
  const std::optional<spec::Spec> spec = spec::read_spec(document, unread);
  for (const config::Field& field : table.fields()) {
    const config::Entry* entry = document.find(field.path);
    const config::Value* value = entry ? &entry->value : table.initial_of(field.path);
    Shown one{&field, std::nullopt, entry ? entry->key_span : config::Span{}};
    one.value = value != nullptr ? std::optional(*value) : derived(field.path, spec);
    const bool no_model = field.path == "model.name" && document.find("model") == nullptr;
    if (one.value || field.required || no_model) shown.push_back(std::move(one));
  }
  return shown;
}

std::string toml_text(const std::vector<Shown>& shown,
                      const std::function<std::string(const Shown&)>& remark) {
  std::size_t widest = 0;
  for (const Shown& s : shown) widest = std::max(widest, line_of(s).size());
  std::string text, section;
  for (const Shown& s : shown) {
    const std::string own = s.field->path.substr(0, s.field->path.rfind('.'));
    if (own != section) text += join_parts(section.empty() ? "" : "\n", "[", own, "]\n");
    section = own;
    std::string line = line_of(s);
    if (const std::string behind = remark(s); !behind.empty())
      line.append(widest - line.size() + 2, ' ') += "# " + behind;
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::cli
