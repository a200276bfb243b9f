// Memory of glass: addresses that fault, and pinned memory of the host that faults while a copy is
// under way (device.h). Private to glass. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/glass/race.h"

namespace lockstep::glass {

// Where kernels find what is at a device address.
void* host_view(const void* device);
bool is_device_memory(const void* data);
inline std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uint64_t>(data); }

c10::Allocator& allocator();
c10::Allocator& pinned_allocator();
void install_allocators();  // once

// The same pages mapped twice, for the host and for kernels. While a copy that nobody has waited
// for may still use it, the host's mapping refuses, reads too if it is written.
struct Pinned {
  char *data, *kernel;
  std::size_t bytes, mapped;
  std::vector<std::shared_ptr<Clock>> pending;
};
Pinned* pinned_at(const void* data);  // null where it is not pinned
void close_for_host(Pinned& block, int stream, bool device_writes);
// After the host has waited for something.
void open_what_is_over();

}  // namespace lockstep::glass
