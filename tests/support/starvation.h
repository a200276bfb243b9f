// Tests of deadlines on a machine that may not have the time: only an attempt whose process was
// starved may be repeated, so that a fault which shows once in a hundred runs is not mistaken for
// one.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep {

// What `attempt(i)` finds wrong, i = 0, 1, ...; "" as soon as it finds nothing. An attempt is
// repeated, at most `tries` in all, only if the machine withheld `lost` or more from this process
// at one time during it: a thread that sleeps 10 ms at a time overslept by that much, or the
// hypervisor took as much from every processor. Says so on stdout. Thread-safe.
std::string wrong_unless_starved(int tries, Seconds lost,
                                 const std::function<std::string(int)>& attempt);

}  // namespace lockstep
