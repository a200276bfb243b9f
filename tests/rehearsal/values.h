// LibTorch's CUDA operators on the rehearsal runtime, with values: the host side of CUDA's kernel
// runs, checks its arguments, takes memory and launches what does nothing; then what the CPU's
// kernel computes is put into its outputs. Shapes and types of both must agree. Streams, events and
// the caching allocator's blocks are followed by glass's checker (tests/glass/race.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::rehearsal {

// After all CUDA operators are registered; once. One thread.
void install_values();

// The checker's number of the stream that is current on a device. Any thread.
int stream_number_now(int device);

// Operators that CUDA has and the CPU has not, by how often they were called: without values.
std::map<std::string, std::int64_t> without_values();

}  // namespace lockstep::rehearsal
