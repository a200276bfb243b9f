// Named orders of compute, each a pure function of the shape in its own file and a row of catalog.h.
// kOutOfRange for a shape it does not take. Any thread may call them.
#pragma once

#include <string_view>

#include "lockstep/schedule/schedule.h"

namespace lockstep::schedule {

Result<Schedule> gpipe(const Shape& shape);
Result<Schedule> one_f_one_b(const Shape& shape);

// For schedules that run one stage per coordinate: refuses unusable shapes and chunks other than 1.
Result<void> check_one_chunk(std::string_view name, const Shape& shape);

}  // namespace lockstep::schedule
