// Models known by name, each with where its numbers come from.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/model/model_config.h"

namespace lockstep::model {

struct CatalogRow {
  ModelConfig config;  // its name is the row's name: "llama3-405b"
  std::string_view source;
  std::vector<std::string> also = {};  // other names of the same row
};

// In the order shown to users: by family, then by size. Built once; any thread may read it.
std::span<const CatalogRow> catalog();

// A row by name. Case and the choice of '-', '_' and '.' do not matter. kUnknownModel, with the
// nearest names, when there is none.
Result<CatalogRow> find(std::string_view name);

}  // namespace lockstep::model
