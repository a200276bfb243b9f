// docs/schedules.md as the catalogue and the simulator have it.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

std::string schedules_page();

// What `lockstep simulate` prints for these words, which must succeed.
std::string ask_simulate(const std::vector<std::string>& words);

}  // namespace lockstep::cli
