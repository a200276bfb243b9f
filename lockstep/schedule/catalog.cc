#include "lockstep/schedule/catalog.h"

#include <string>

#include "lockstep/schedule/generators/generators.h"

namespace lockstep::schedule {
namespace {

constexpr CatalogRow kRows[] = {
    {"gpipe", gpipe, "all forward passes, then all backward passes", "chunks = 1, any microbatches",
     "(p-1)(tF+tB+tW)", "m"},
    {"1f1b", one_f_one_b, "alternates forward and backward passes after a short warm-up",
     "chunks = 1, any microbatches", "(p-1)(tF+tB+tW)", "min(m, p-r)"},
};

}  // namespace

std::span<const CatalogRow> catalog() { return kRows; }

Result<CatalogRow> find(std::string_view name) {
  std::string names;
  for (const CatalogRow& row : kRows) {
    if (row.name == name) return row;
    names += (names.empty() ? "`" : ", `") + std::string(row.name) + "`";
  }
  return Error{Code::kUnknownChoice, "there is no schedule `" + std::string(name) + "`",
               "schedules are " + names};
}

}  // namespace lockstep::schedule
