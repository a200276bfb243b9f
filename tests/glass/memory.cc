#include "tests/glass/memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/glass/device.h"

namespace lockstep::glass {
namespace {

// Two reservations a constant apart: what tensors hold points into the one that nobody may touch.
constexpr std::size_t kArena = std::size_t{1} << 42;
struct Arena {
  char* const device = reserve(PROT_NONE);
  char* const real = reserve(PROT_READ | PROT_WRITE);

  static char* reserve(int protection) {
    void* const at =
        mmap(nullptr, kArena, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(at != MAP_FAILED, "no addresses for the test device");
    return static_cast<char*>(at);
  }
};
const Arena& arena() {
  static const auto* const one = new Arena;
  return *one;
}
}  // namespace

bool is_device_memory(const void* data) {
  const char* const at = static_cast<const char*>(data);
  return at >= arena().device && at < arena().device + kArena;
}
void* host_view(const void* device) {
  return arena().real + (static_cast<const char*>(device) - arena().device);
}
namespace {

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(kDevice, device_now());
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    const int stream = number_now(device_now());
    char* const data = place_for(bytes, stream);
    std::memset(host_view(data), 0xff, bytes);  // NaN in every floating type
    race().take(address_of(data), bytes, stream);
    return {data, new Block{data, bytes, device_now(), stream}, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(host_view(to), host_view(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) race().use_on(address_of(data.get()), stream_number(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    return stats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    stats(device).requested_bytes[0].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    stats(device).requested_bytes[0].reset_peak();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    return {kArena, kArena};
  }

 private:
  struct Block {
    char* data;
    std::size_t bytes;
    c10::DeviceIndex device;
    int stream;
  };
  static std::size_t rounded(std::size_t bytes) { return (bytes + 511) / 512 * 512; }
  c10::CachingDeviceAllocator::DeviceStats& stats(c10::DeviceIndex device) {
    return stats_[static_cast<std::size_t>(device)];
  }
  // What a stream returned serves that stream again, as CUDA's allocator has it.
  char* place_for(std::size_t bytes, int stream) {
    const std::lock_guard lock(mutex_);
    stats(device_now()).requested_bytes[0].increase(bytes);
    stats(device_now()).allocation[0].increase(1);
    std::vector<char*>& free = free_[{stream, rounded(bytes)}];
    if (free.empty()) {
      char* const data = arena().device + top_;
      top_ += rounded(bytes);
      TORCH_CHECK(top_ <= kArena, "the test device is out of addresses");
      return data;
    }
    char* const data = free.back();
    free.pop_back();
    return data;
  }
  static void release(void* context);
  void give(const Block& block) {
    race().give(address_of(block.data));
    const std::lock_guard lock(mutex_);
    stats(block.device).requested_bytes[0].decrease(block.bytes);
    stats(block.device).allocation[0].decrease(1);
    free_[{block.stream, rounded(block.bytes)}].push_back(block.data);
  }

  std::mutex mutex_;
  std::size_t top_ = 0;
  std::map<std::pair<int, std::size_t>, std::vector<char*>> free_;  // by stream and size
  std::array<c10::CachingDeviceAllocator::DeviceStats, kDevices> stats_;
};
Allocator& the_allocator() {
  static auto* const one = new Allocator;
  return *one;
}
void Allocator::release(void* context) {
  if (context == nullptr) return;
  the_allocator().give(*static_cast<Block*>(context));
  delete static_cast<Block*>(context);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const std::size_t mapped = (bytes + 4096) / 4096 * 4096;
    const int file = memfd_create("pinned", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(mapped)) == 0, "no pinned memory");
    const auto map = [&] {
      return static_cast<char*>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    };
    auto* const block = new Pinned{map(), map(), bytes, mapped, {}};
    close(file);
    race().take(address_of(block->data), bytes, number_now(device_now()));
    const std::lock_guard lock(mutex);
    blocks[block->data] = block;
    return {block->data, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void* data, void* /*context*/, c10::Stream stream) override {
    race().use_on(address_of(data), stream_number(stream));
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  std::mutex mutex;
  std::map<const char*, Pinned*> blocks;  // by begin

 private:
  static void release(void* context);
};
PinnedAllocator& pinned() {
  static auto* const one = new PinnedAllocator;
  return *one;
}
void PinnedAllocator::release(void* context) {
  auto* const block = static_cast<Pinned*>(context);
  {
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(block->data);
  }
  race().give(address_of(block->data));
  munmap(block->data, block->mapped);
  munmap(block->kernel, block->mapped);
  delete block;
}

}  // namespace

c10::Allocator& allocator() { return the_allocator(); }
c10::Allocator& pinned_allocator() { return pinned(); }

void install_allocators() {
  c10::SetAllocator(kDevice, &the_allocator());
  at::setHostAllocator(kDevice, &pinned());
}

Pinned* pinned_at(const void* data) {
  const std::lock_guard lock(pinned().mutex);
  auto next = pinned().blocks.upper_bound(static_cast<const char*>(data));
  if (next == pinned().blocks.begin()) return nullptr;
  --next;
  return static_cast<const char*>(data) < next->first + next->second->bytes ? next->second
                                                                            : nullptr;
}

void close_for_host(Pinned& block, int stream, bool device_writes) {
  const std::lock_guard lock(pinned().mutex);
  block.pending.push_back(race().record(stream));
  mprotect(block.data, block.mapped, device_writes ? PROT_NONE : PROT_READ);
}

void open_what_is_over() {
  const std::lock_guard lock(pinned().mutex);
  for (const auto& [begin, block] : pinned().blocks) {
    if (block->pending.empty()) continue;
    std::erase_if(block->pending,
                  [](const auto& event) { return race().is_over_for_host(*event); });
    if (block->pending.empty()) mprotect(block->data, block->mapped, PROT_READ | PROT_WRITE);
  }
}

}  // namespace lockstep::glass
