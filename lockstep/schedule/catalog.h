// Schedules known by name. Adding one takes a file in generators/, its declaration, and a row here.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/schedule/schedule.h"

namespace lockstep::schedule {

// Formulas are in p coordinates, m microbatches, coordinate r, and tF, tB, tW: the times of F, I
// and W of one stage.
struct CatalogRow {
  std::string_view name;
  Result<Schedule> (*build)(const Shape& shape);
  std::string_view summary;  // one line
  std::string_view accepts;  // shapes
  std::string_view bubble;   // idle time of a coordinate in one step, communication taking none
  std::string_view peak;     // microbatches whose activations coordinate r holds at once
};

// In the order shown to users.
std::span<const CatalogRow> catalog();

// kUnknownChoice for a name that is no row; the error lists the names.
Result<CatalogRow> find(std::string_view name);

}  // namespace lockstep::schedule
