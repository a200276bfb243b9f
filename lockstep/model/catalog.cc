#include "lockstep/model/catalog.h"

#include <cctype>
#include <utility>

#include "lockstep/base/units.h"
#include "lockstep/config/suggest.h"
#include "lockstep/model/catalog_rows.h"

namespace lockstep::model {
namespace {

std::string folded(std::string_view name) {
  std::string out;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '_' || letter == '.')
      out += '-';
    else
      out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

std::vector<CatalogRow> all_rows() {
  std::vector<CatalogRow> rows;
  for (auto* part : {gpt_rows, llama_rows, qwen_rows, olmo_and_gemma_rows, expert_rows, tiny_rows})
    for (CatalogRow& row : part()) rows.push_back(std::move(row));
  return rows;
}

std::string_view stem(std::string_view name) { return name.substr(0, name.find('-')); }

// A name with nothing near it still deserves a lead: rows whose first word is near its first word.
std::string suggestion(std::string_view name) {
  std::vector<std::string> names;
  std::vector<std::string> stems;
  for (const CatalogRow& row : catalog()) {
    names.push_back(row.config.name);
    names.insert(names.end(), row.also.begin(), row.also.end());
  }
  const std::string hint = config::did_you_mean(name, names);
  if (!hint.empty()) return hint + " `lockstep model --list` shows all";
  for (const std::string& candidate : names) stems.emplace_back(stem(candidate));
  const std::vector<std::string> near = config::nearest(stem(folded(name)), stems, 1);
  if (near.empty())
    return strf("`lockstep model --list` shows the %zu known models", catalog().size());
  std::vector<std::string> kin;
  for (const std::string& candidate : names)
    if (stem(candidate) == near.front()) kin.push_back(candidate);
  if (kin.size() > 5) kin.resize(5);
  return "near it are " + config::listed(kin) + "; `lockstep model --list` shows all";
}

}  // namespace

std::span<const CatalogRow> catalog() {
  static const std::vector<CatalogRow> rows = all_rows();
  return rows;
}

Result<CatalogRow> find(std::string_view name) {
  const std::string wanted = folded(name);
  for (const CatalogRow& row : catalog()) {
    if (folded(row.config.name) == wanted) return row;
    for (const std::string& other : row.also)
      if (folded(other) == wanted) return row;
  }
  return Error{Code::kUnknownModel, strf("no model is called `%s`", std::string(name).c_str()),
               suggestion(name)};
}

}  // namespace lockstep::model
