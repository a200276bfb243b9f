// Operators of glass (device.h). Private to glass.
#pragma once

namespace lockstep::glass {

// Once.
void register_ops();

}  // namespace lockstep::glass
