// In place of libcudart.so.13; see rehearsal.h. fakes.py adds functions that return 0 for the rest
// of what LibTorch looks for.
#include <driver_types.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/rehearsal/events.h"
#include "tests/rehearsal/pending.h"
#include "tests/rehearsal/rehearsal.h"

namespace lockstep::rehearsal {
namespace {

constexpr int kDevices = 16;
constexpr int kSuccess = 0, kOutOfMemory = 2, kNotReady = 600;
constexpr std::size_t kTotal = std::size_t{80} << 30;  // of a device
constexpr std::size_t kArena = std::size_t{1} << 40;

// Two reservations a constant apart: what programs hold points into the one that nobody may touch.
char* reserve(int protection) {
  void* const at =
      mmap(nullptr, kArena, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<char*>(at);
}
struct Memory {
  char* const device = reserve(PROT_NONE);
  char* const real = reserve(PROT_READ | PROT_WRITE);
  std::mutex mutex;
  std::size_t top = 0;
  struct Block {
    std::size_t bytes;
    int device;
  };
  std::map<char*, Block> blocks;
  std::size_t live[kDevices] = {};
  std::map<char*, std::size_t> pinned;
};
Memory& memory() {
  static auto* const one = new Memory;
  return *one;
}

thread_local int current = 0;  // device
const Listener* listener = nullptr;
std::atomic<std::int64_t> launches = 0, host_waits = 0;

using PendingPtr = std::shared_ptr<Pending>;
std::mutex pending_mutex;
std::map<std::pair<void*, int>, std::vector<PendingPtr>> of_stream;
std::map<void*, std::vector<PendingPtr>> of_event;

std::pair<void*, int> key_of(void* stream) { return {stream, stream == nullptr ? current : -1}; }
void settle(const std::vector<PendingPtr>& all) {
  for (const PendingPtr& one : all) one->wait();
}
void settle_stream(void* stream) {
  std::vector<PendingPtr> all;
  {
    const std::lock_guard lock(pending_mutex);
    all = std::move(of_stream[key_of(stream)]);
    of_stream[key_of(stream)].clear();
  }
  settle(all);
}
void settle_event(void* event) {
  std::vector<PendingPtr> all;
  {
    const std::lock_guard lock(pending_mutex);
    if (const auto found = of_event.find(event); found != of_event.end()) all = found->second;
  }
  settle(all);
}

int launched(const void* function) {
  ++launches;
  Events::get().add_launch(function);
  return kSuccess;
}
void host_waited(const char* how) {
  ++host_waits;
  Events::get().add_wait(how);
}
int nothing() { return kSuccess; }

}  // namespace

extern "C" {

void rehearsal_listen(const Listener* to) { listener = to; }
bool rehearsal_is_device(const void* data) {
  const char* const at = static_cast<const char*>(data);
  return at >= memory().device && at < memory().device + kArena;
}
void* rehearsal_host_view(const void* data) {
  if (!rehearsal_is_device(data)) return const_cast<void*>(data);
  return memory().real + (static_cast<const char*>(data) - memory().device);
}
std::int64_t rehearsal_launches() { return launches; }
std::int64_t rehearsal_host_waits() { return host_waits; }
bool rehearsal_has_values() { return !Events::get().are_wanted(); }
void rehearsal_event(const char* kind, std::int64_t bytes, const char* name) {
  Events::get().add(kind, bytes, name);
}
// For the library in place of NCCL.
void rehearsal_enqueue(void* stream, const PendingPtr* one) {
  const std::lock_guard lock(pending_mutex);
  of_stream[key_of(stream)].push_back(*one);
}
void rehearsal_touched(const char* name, const void* in, std::size_t in_bytes, const void* out,
                       std::size_t out_bytes, void* stream) {
  if (listener != nullptr) listener->touched(name, in, in_bytes, out, out_bytes, stream, current);
}
void rehearsal_refused(const char* why) {
  if (listener != nullptr) listener->refused(why);
}

// ---- devices

int cudaGetDeviceCount(int* count) { return *count = kDevices, kSuccess; }
int cudaGetDevice(int* device) { return *device = current, kSuccess; }
int cudaSetDevice(int device) { return current = device, kSuccess; }
int cudaDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
int cudaRuntimeGetVersion(int* version) { return *version = 13000, kSuccess; }
// Of an H100; REHEARSAL_SM names another architecture.
int cudaGetDeviceProperties(cudaDeviceProp* of, int /*device*/) {
  *of = {};
  std::snprintf(of->name, sizeof of->name, "rehearsal");
  const char* const named = std::getenv("REHEARSAL_SM");
  const int architecture = named != nullptr ? std::atoi(named) : 90;
  of->major = architecture / 10;
  of->minor = architecture % 10;
  of->totalGlobalMem = kTotal;
  of->multiProcessorCount = 132;
  of->warpSize = 32;
  of->maxThreadsPerBlock = 1024;
  of->maxThreadsPerMultiProcessor = 2048;
  of->sharedMemPerBlock = 48 << 10;
  of->sharedMemPerBlockOptin = 227 << 10;
  of->sharedMemPerMultiprocessor = 228 << 10;
  of->regsPerBlock = of->regsPerMultiprocessor = 65536;
  of->l2CacheSize = 50 << 20;
  of->maxThreadsDim[0] = of->maxThreadsDim[1] = 1024;
  of->maxThreadsDim[2] = 64;
  of->maxGridSize[0] = 2147483647;
  of->maxGridSize[1] = of->maxGridSize[2] = 65535;
  of->maxBlocksPerMultiProcessor = 32;
  of->textureAlignment = 512;
  return kSuccess;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  cudaDeviceProp of;
  cudaGetDeviceProperties(&of, device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return *value = of.maxThreadsPerBlock, kSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return *value = static_cast<int>(of.sharedMemPerBlock), kSuccess;
    case cudaDevAttrWarpSize:
      return *value = of.warpSize, kSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = of.multiProcessorCount, kSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return *value = of.maxThreadsPerMultiProcessor, kSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = of.major, kSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = of.minor, kSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return *value = static_cast<int>(of.sharedMemPerMultiprocessor), kSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(of.sharedMemPerBlockOptin), kSuccess;
    default:
      return *value = 1, kSuccess;
  }
}
int cudaDeviceCanAccessPeer(int* can, int /*one*/, int /*other*/) { return *can = 1, kSuccess; }
const char* cudaGetErrorName(int /*error*/) { return "rehearsal"; }
const char* cudaGetErrorString(int /*error*/) { return "an error of the rehearsal runtime"; }
int cudaGetDriverEntryPointByVersion(const char* /*name*/, void** function, unsigned /*version*/,
                                     unsigned long long /*flags*/, int* status) {
  *function = reinterpret_cast<void*>(&nothing);
  if (status != nullptr) *status = 0;
  return kSuccess;
}

// ---- memory

int cudaMalloc(void** data, std::size_t bytes) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  if (all.live[current] + bytes > kTotal || all.top + bytes > kArena) return kOutOfMemory;
  *data = all.device + all.top;
  all.blocks[all.device + all.top] = {bytes, current};
  all.top += (bytes + 511) / 512 * 512;
  all.live[current] += bytes;
  if (rehearsal_has_values()) std::memset(rehearsal_host_view(*data), 0xff, bytes);  // NaN
  Events::get().add("malloc", static_cast<std::int64_t>(bytes), "");
  return kSuccess;
}
int cudaFree(void* data) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(static_cast<char*>(data));
  if (found == all.blocks.end()) return kSuccess;
  all.live[found->second.device] -= found->second.bytes;
  Events::get().add("free", static_cast<std::int64_t>(found->second.bytes), "");
  madvise(rehearsal_host_view(data), found->second.bytes, MADV_DONTNEED);
  all.blocks.erase(found);
  return kSuccess;
}
int cudaMallocAsync(void** data, std::size_t bytes, void* /*stream*/) {
  return cudaMalloc(data, bytes);
}
int cudaFreeAsync(void* data, void* /*stream*/) { return cudaFree(data); }
int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = kTotal;
  *free = kTotal - memory().live[current];
  return kSuccess;
}
int cudaGetSymbolAddress(void** data, const void* /*symbol*/) { return cudaMalloc(data, 1 << 16); }
int cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  const std::lock_guard lock(memory().mutex);
  memory().pinned[static_cast<char*>(*data)] = bytes;
  return kSuccess;
}
int cudaFreeHost(void* data) {
  {
    const std::lock_guard lock(memory().mutex);
    memory().pinned.erase(static_cast<char*>(data));
  }
  std::free(data);
  return kSuccess;
}
int cudaPointerGetAttributes(cudaPointerAttributes* of, const void* data) {
  *of = {};
  of->type = cudaMemoryTypeUnregistered;
  if (rehearsal_is_device(data)) {
    of->type = cudaMemoryTypeDevice;
    of->devicePointer = const_cast<void*>(data);
    const std::lock_guard lock(memory().mutex);
    auto found = memory().blocks.upper_bound(static_cast<char*>(const_cast<void*>(data)));
    if (found != memory().blocks.begin()) of->device = (--found)->second.device;
    return kSuccess;
  }
  const std::lock_guard lock(memory().mutex);
  auto found = memory().pinned.upper_bound(static_cast<char*>(const_cast<void*>(data)));
  if (found == memory().pinned.begin()) return kSuccess;
  --found;
  if (static_cast<const char*>(data) < found->first + found->second) {
    of->type = cudaMemoryTypeHost;
    of->hostPointer = const_cast<void*>(data);
  }
  return kSuccess;
}
static std::string kind_of_memory(const void* data) {
  cudaPointerAttributes of;
  cudaPointerGetAttributes(&of, data);
  if (of.type == cudaMemoryTypeDevice) return "device";
  return of.type == cudaMemoryTypeHost ? "pinned" : "pageable";
}
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int /*kind*/, void* stream) {
  if (listener != nullptr) listener->copied(to, from, bytes, stream, current);
  if (!rehearsal_has_values()) {
    const std::string between = kind_of_memory(from) + " to " + kind_of_memory(to);
    Events::get().add("copy", static_cast<std::int64_t>(bytes), between.c_str());
    if (bytes > kLargestCopy) return kSuccess;
  }
  std::memcpy(rehearsal_host_view(to), rehearsal_host_view(from), bytes);
  return kSuccess;
}
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  host_waited("cudaMemcpy");
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
int cudaMemsetAsync(void* data, int value, std::size_t bytes, void* /*stream*/) {
  Events::get().add("memset", static_cast<std::int64_t>(bytes), "");
  if (rehearsal_has_values()) std::memset(rehearsal_host_view(data), value, bytes);
  return kSuccess;
}
int cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

// ---- streams and events

int cudaStreamCreate(void** stream) { return *stream = std::malloc(8), kSuccess; }
int cudaStreamCreateWithFlags(void** stream, unsigned /*flags*/) {
  return cudaStreamCreate(stream);
}
int cudaStreamCreateWithPriority(void** stream, unsigned /*flags*/, int /*priority*/) {
  return cudaStreamCreate(stream);
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, kSuccess;
}
int cudaStreamIsCapturing(void* /*stream*/, int* status) { return *status = 0, kSuccess; }
int cudaStreamGetCaptureInfo(void* /*stream*/, int* status, unsigned long long* id, void*, void*,
                             void*, void*) {
  *status = 0;
  if (id != nullptr) *id = 0;
  return kSuccess;
}
int cudaEventCreate(void** event) { return *event = std::malloc(8), kSuccess; }
int cudaEventCreateWithFlags(void** event, unsigned /*flags*/) { return cudaEventCreate(event); }
int cudaEventElapsedTime(float* milliseconds, void* /*from*/, void* /*to*/) {
  return *milliseconds = 0, kSuccess;
}
int cudaEventRecord(void* event, void* stream) {
  {
    const std::lock_guard lock(pending_mutex);
    of_event[event] = of_stream[key_of(stream)];
  }
  if (listener != nullptr) listener->recorded(event, stream, current);
  return kSuccess;
}
int cudaEventRecordWithFlags(void* event, void* stream, unsigned /*flags*/) {
  return cudaEventRecord(event, stream);
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned /*flags*/) {
  settle_event(event);
  if (listener != nullptr) listener->stream_waits(stream, current, event);
  return kSuccess;
}
int cudaEventSynchronize(void* event) {
  host_waited("cudaEventSynchronize");
  settle_event(event);
  if (listener != nullptr) listener->host_waits_for_event(event);
  return kSuccess;
}
int cudaStreamSynchronize(void* stream) {
  host_waited("cudaStreamSynchronize");
  settle_stream(stream);
  if (listener != nullptr) listener->host_waits_for_stream(stream, current);
  return kSuccess;
}
int cudaDeviceSynchronize() {
  host_waited("cudaDeviceSynchronize");
  settle_stream(nullptr);
  if (listener != nullptr) listener->host_waits_for_device(current);
  return kSuccess;
}
int cudaEventQuery(void* event) {
  {
    const std::lock_guard lock(pending_mutex);
    for (const PendingPtr& one : of_event[event])
      if (!one->is_over()) return kNotReady;
  }
  return listener == nullptr || listener->is_over(event) ? kSuccess : kNotReady;
}

// ---- kernels

int cudaFuncGetAttributes(cudaFuncAttributes* of, const void* /*function*/) {
  *of = {};
  of->maxThreadsPerBlock = 1024;
  of->numRegs = 32;
  of->binaryVersion = of->ptxVersion = 90;
  return kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/,
                                                  int /*size*/, std::size_t /*shared*/) {
  return *blocks = 2, kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* /*function*/,
                                                           int /*size*/, std::size_t /*shared*/,
                                                           unsigned /*flags*/) {
  return *blocks = 2, kSuccess;
}
void** __cudaRegisterFatBinary(void* /*binary*/) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, ...) {
  Events::get().name_kernel(function, name);
}
unsigned __cudaPushCallConfiguration(unsigned /*grid*/, ...) { return 0; }
int __cudaPopCallConfiguration(void* grid, void* block, std::size_t* shared, void* stream) {
  std::memset(grid, 0, 12);
  std::memset(block, 0, 12);
  *shared = 0;
  *static_cast<void**>(stream) = nullptr;
  return kSuccess;
}
int __cudaGetKernel(const void** kernel, const void* function) {
  return *kernel = function, kSuccess;
}
int __cudaLaunchKernel(const void* function, ...) { return launched(function); }
int cudaLaunchKernel(const void* function, ...) { return launched(function); }
int cudaLaunchKernelExC(const void* /*config*/, const void* function, void** /*arguments*/) {
  return launched(function);
}
int cudaLaunchCooperativeKernel(const void* function, ...) { return launched(function); }
char __cudaInitModule(void** /*handle*/) { return 1; }

}  // extern "C"

}  // namespace lockstep::rehearsal
