#include "lockstep/cost/measured/schema_file.h"

namespace lockstep::cost {

Result<Json> parse_file(std::string_view text, const std::string& name, std::string_view schema,
                        const std::string& remedy) {
  Result<Json> json = Json::parse(text);
  if (!json.ok())
    return Error{Code::kSyntax, join_parts("`", name, "`:", json.error().message), remedy};
  const Json* found = json->is_object() ? json->find("schema") : nullptr;
  if (found == nullptr || !found->is_text())
    return Error{Code::kSyntax,
                 join_parts("`", name, "` has no schema, where ", schema, " is expected"), remedy};
  if (found->as_text() != schema)
    return Error{Code::kSyntax,
                 join_parts("`", name, "` is of schema ", found->as_text(),
                            ", where this program reads ", schema),
                 remedy};
  return json;
}

Error unreadable_member(const std::string& name, const std::string& trouble) {
  return {Code::kSyntax, join_parts("`", name, "`: ", trouble), ""};
}

}  // namespace lockstep::cost
