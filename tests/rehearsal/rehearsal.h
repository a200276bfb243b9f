// Rehearsal: LibTorch's own CUDA half, its caching allocator and ProcessGroupNCCL, over libraries
// that have the names of CUDA's runtime, cuBLAS, the driver and NCCL, and no GPU below them. Memory
// is reserved addresses that fault on the host; copies happen, kernels do not, collectives move
// bytes between threads. The libraries are preloaded (run.sh); this is what they tell a program
// that listens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::rehearsal {

// Handles are the runtime's; a null stream is the default one of the device. Any thread.
struct Listener {
  void (*recorded)(void* event, void* stream, int device);
  void (*stream_waits)(void* stream, int device, void* event);
  void (*host_waits_for_event)(void* event);
  void (*host_waits_for_stream)(void* stream, int device);
  void (*host_waits_for_device)(int device);
  bool (*is_over)(void* event);
  void (*copied)(const void* to, const void* from, std::size_t bytes, void* stream, int device);
  // By something that is no operator: a collective.
  void (*touched)(const char* name, const void* in, std::size_t in_bytes, const void* out,
                  std::size_t out_bytes, void* stream, int device);
  // What NCCL might hang at, or do wrong, without an error.
  void (*refused)(const char* why);
};

// What the library in place of libcudart has besides CUDA's own functions.
extern "C" {
void rehearsal_listen(const Listener* listener);  // which must live on
void* rehearsal_host_view(const void* device);    // where the bytes of a device address are
bool rehearsal_is_device(const void* data);
std::int64_t rehearsal_launches();    // of kernels, so far
std::int64_t rehearsal_host_waits();  // for the device, by callers of the runtime
bool rehearsal_has_values();          // not where events are written down (events.h)
void rehearsal_event(const char* kind, std::int64_t bytes, const char* name);
}

}  // namespace lockstep::rehearsal
