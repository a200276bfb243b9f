// Schedules as the compute-only CSV of torch.distributed.pipelining, so that files can be
// exchanged. Read in version 2.13.0. One row per pipeline rank (there: rank), and in each cell
//   2F0  2I0  2W0  2B0      stage, kind and microbatch of a pass, as in schedule.h
//   (0F3;7B1)OVERLAP_F_B    F and B at once; in a Schedule they run one after the other, F first
//   nothing                 an idle slot, which a Schedule does not have
// Shape and placement are in no cell: they follow from which stages are in which row. Pure; any
// thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Every cell of a file, idle ones too, so that what PyTorch wrote is written back byte for byte.
struct CsvSheet {
  using Cell = std::vector<Pass>;  // none, one, or F and B
  std::vector<std::vector<Cell>> rows;
  bool operator==(const CsvSheet&) const = default;
};

// Rows may end in LF or CR LF, and blanks around a cell are dropped, as PyTorch does. kSyntax,
// naming row, column and cell, for anything else, and for the ops of PyTorch's other format,
// compute_comms.
Result<CsvSheet> parse_csv(std::string_view text);

// kBadSchedule, naming row, column and cell where there is one, for stages that are placed neither
// as kLoop nor as kV, and for whatever Schedule::create refuses. Where both placements fit, kLoop.
Result<Schedule> to_schedule(const CsvSheet& sheet);

Result<Schedule> from_csv(std::string_view text);  // both at once

// Rows end in CR LF, as Python's csv module ends them. A schedule has no idle cells; PyTorch's
// runtime passes over those anyway.
std::string to_csv(const CsvSheet& sheet);
std::string to_csv(const Schedule& schedule);

}  // namespace lockstep::pipeline
