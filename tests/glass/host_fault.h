// A host that touches device memory, told with what the device did there last. Such memory must
// fault (PROT_NONE) on whatever device this is used with.
#pragma once

namespace lockstep::glass {

// Once, before any thread may fault; what else faults ends the process as ever. A touch ends it,
// too, after the report is written to stderr.
void tell_host_faults(bool (*is_device_memory)(const void*));

// Reads a byte, on purpose: what the checker reports (race.h) is the outcome, and the process goes
// on. Whether it was device memory. REQUIRES: tell_host_faults() before.
bool host_reads(const void* data);

}  // namespace lockstep::glass
