#include "lockstep/tensor/memory.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <new>

#include "lockstep/base/block_cache.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::tensor {
namespace {

thread_local MemoryAccount* current_account = nullptr;  // null: the process's

// In front of each block, so that returning it needs no table and no lock, and the block keeps
// ATen's alignment of 64.
struct alignas(64) Header {
  std::int64_t bytes;
  MemoryAccount* account;
};
static_assert(sizeof(Header) == 64);

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(std::size_t cache_bytes) : cache_(cache_bytes) {}

  c10::DataPtr allocate(std::size_t n) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (n == 0) return {nullptr, nullptr, &release, cpu};
    MemoryAccount& account = current_account != nullptr ? *current_account : process_account();
    const auto bytes = static_cast<std::int64_t>(n);
    auto* header = new (cache_.take(n + sizeof(Header))) Header{bytes, &account};
    account.take(bytes);
    return {header + 1, header + 1, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    default_copy_data(to, from, n);
  }

 private:
  static void release(void* data);
  BlockCache cache_;
};

CountingAllocator* installed = nullptr;  // never destroyed: tensors may outlive main
c10::Allocator* replaced = nullptr;      // LibTorch's own

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  auto* header = static_cast<Header*>(data) - 1;
  header->account->give(header->bytes);
  installed->cache_.give(header, static_cast<std::size_t>(header->bytes) + sizeof(Header));
}

}  // namespace

void MemoryAccount::take(std::int64_t bytes) {
  const std::int64_t now = live_ += bytes;
  for (std::int64_t old = peak_; old < now && !peak_.compare_exchange_weak(old, now);) {
  }
  ++allocations_;
}

void install_counting_allocator(std::int64_t cache_bytes) {
  if (installed == nullptr) {
    replaced = c10::GetCPUAllocator();
    installed = new CountingAllocator(cache_bytes);
  }
  c10::SetCPUAllocator(installed, /*priority=*/1);
}

void uninstall_counting_allocator() {
  if (replaced != nullptr) c10::SetCPUAllocator(replaced, /*priority=*/1);
}

MemoryAccount& process_account() {
  static auto* account = new MemoryAccount;
  return *account;
}

ChargeTo::ChargeTo(MemoryAccount& account) : saved_(current_account) { current_account = &account; }
ChargeTo::~ChargeTo() { current_account = saved_; }

namespace {

// As they were asked for, without rounding.
c10::CachingAllocator::Stat requested(Device device) {
  const at::Device at = torch_device_of(device);
  return c10::getDeviceAllocator(at.type())->getDeviceStats(at.index()).requested_bytes[0];
}

}  // namespace

// A first product, because cuBLAS keeps the workspace that it takes then.
DeviceMemory::DeviceMemory(Device device, MemoryAccount& account)
    : device_(device), account_(account) {
  if (device.kind == DeviceKind::kCpu) return;
  const at::Tensor one = at::zeros({1, 1}, torch_device_of(device));
  at::mm(one, one);
  before_ = requested(device).current - one.element_size();
}

std::int64_t DeviceMemory::live() const {
  return device_.kind == DeviceKind::kCpu ? account_.live() : requested(device_).current - before_;
}

std::int64_t DeviceMemory::peak() const {
  return device_.kind == DeviceKind::kCpu ? account_.peak() : requested(device_).peak - before_;
}

void DeviceMemory::reset_peak() {
  if (device_.kind == DeviceKind::kCpu) return account_.reset_peak();
  const at::Device at = torch_device_of(device_);
  c10::getDeviceAllocator(at.type())->resetPeakStats(at.index());
}

bool packs_keys() { return at::native::cpublas::could_pack(at::kBFloat16); }

}  // namespace lockstep::tensor
