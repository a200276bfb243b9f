#include "lockstep/tensor/memory.h"

#include <ATen/native/CPUBlas.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <new>

#include "lockstep/base/block_cache.h"

namespace lockstep::tensor {
namespace {

void raise_to(std::atomic<std::int64_t>& peak, std::int64_t now) {
  for (std::int64_t old = peak; old < now && !peak.compare_exchange_weak(old, now);) {
  }
}

thread_local MemoryAccount* current_account = nullptr;  // null: the process's
thread_local MemoryKind current_kind = MemoryKind::kOther;

// In front of each block, so that returning it needs no table and no lock, and the block keeps
// ATen's alignment of 64.
struct alignas(64) Header {
  std::int64_t bytes;
  MemoryAccount* account;
  MemoryKind kind;
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
    auto* header = new (cache_.take(n + sizeof(Header))) Header{bytes, &account, current_kind};
    account.take(current_kind, bytes);
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
  header->account->give(header->kind, header->bytes);
  installed->cache_.give(header, static_cast<std::size_t>(header->bytes) + sizeof(Header));
}

}  // namespace

std::string_view to_text(MemoryKind kind) {
  static constexpr std::array<std::string_view, kNumMemoryKinds> kNames = {
      "parameters", "gradients", "optimizer", "activations", "communication", "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

void MemoryAccount::reset_peak() {
  peak_ = live_.load();
  for (Count& count : kinds_) count.peak = count.live.load();
}

void MemoryAccount::take(MemoryKind kind, std::int64_t bytes) {
  Count& count = kinds_[static_cast<std::size_t>(kind)];
  raise_to(count.peak, count.live += bytes);
  raise_to(peak_, live_ += bytes);
  ++allocations_;
}

void MemoryAccount::give(MemoryKind kind, std::int64_t bytes) {
  kinds_[static_cast<std::size_t>(kind)].live -= bytes;
  live_ -= bytes;
}

void install_counting_allocator(std::int64_t cache_bytes) {
  if (installed == nullptr) {
    replaced = c10::GetCPUAllocator();
    installed = new CountingAllocator(static_cast<std::size_t>(cache_bytes));
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

ChargeTo::ChargeTo(MemoryAccount& account)
    : saved_account_(current_account), saved_kind_(current_kind) {
  current_account = &account;
}
ChargeTo::ChargeTo(MemoryKind kind) : saved_account_(current_account), saved_kind_(current_kind) {
  current_kind = kind;
}
ChargeTo::~ChargeTo() {
  current_account = saved_account_;
  current_kind = saved_kind_;
}

bool packs_keys() { return at::native::cpublas::could_pack(at::kBFloat16); }

}  // namespace lockstep::tensor
