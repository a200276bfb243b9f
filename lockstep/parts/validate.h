// Whether a list can be run as it is placed: a symbolic run that follows what is in memory.
#pragma once

#include <string>

#include "lockstep/parts/place.h"

namespace lockstep::parts {

// What is wrong first; empty if nothing is. A part
//   - reads a value that nothing made, that another has overwritten, or whose memory has ended;
//   - makes a value that was made already;
//   - gives memory back that is not there;
//   - writes a gradient that another part of its kind writes;
//   - touches what a collective writes, or changes what it reads, before the wait for it;
// or what should not stay is there behind the last part, or what should is not.
std::string validate(const Pass& pass, const Values& values);

}  // namespace lockstep::parts
