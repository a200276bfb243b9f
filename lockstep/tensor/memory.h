// Every byte of CPU tensor memory, counted as it is taken and returned: the truth that memory
// predictions are checked against. Blocks go through a bounded cache (base/block_cache.h), because
// a ZeRO-3 gather into fresh pages would cost four times the copy itself.
//
// Not seen: scratch inside MKL and oneDNN, autograd's own objects, and what a communication backend
// declares apart.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/base/buffer.h"

namespace lockstep::tensor {

// What one rank uses. Ranks that are threads have one each; a process has one by default. Bytes as
// asked for, without rounding. Must outlive the memory charged to it. Any thread may read it.
class MemoryAccount {
 public:
  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }  // since reset_peak
  std::int64_t allocations() const { return allocations_; }
  void reset_peak() { peak_ = live_.load(); }

  void take(std::int64_t bytes);
  void give(std::int64_t bytes) { live_ -= bytes; }

 private:
  std::atomic<std::int64_t> live_ = 0, peak_ = 0, allocations_ = 0;
};

// Makes LibTorch take CPU memory from here on through the counting allocator. Call it first thing
// in main, before any tensor exists; a later call only undoes an uninstall. Keeps at most
// `cache_bytes` of returned blocks.
void install_counting_allocator(std::int64_t cache_bytes = std::int64_t{1} << 30);
// Back to LibTorch's own allocator for new tensors, so that the two can be measured against each
// other.
void uninstall_counting_allocator();

// The account of threads that have not chosen one.
MemoryAccount& process_account();

// Charges what this thread allocates, while the object lives, to an account. A block is credited
// where it was charged, whichever thread returns it.
class ChargeTo {
 public:
  explicit ChargeTo(MemoryAccount& account);
  ~ChargeTo();
  ChargeTo(ChargeTo&&) = delete;

 private:
  MemoryAccount* const saved_;
};

// What a rank uses of its device: of a CPU what is charged to `account`, which must outlive it, of
// an accelerator what its allocator was asked for, by whomever, since this was made. Any thread may
// read it.
class DeviceMemory {
 public:
  DeviceMemory(Device device, MemoryAccount& account);

  std::int64_t live() const;
  std::int64_t peak() const;  // since reset_peak
  void reset_peak();

 private:
  const Device device_;
  MemoryAccount& account_;
  std::int64_t before_ = 0;
};

// Whether LibTorch's attention copies keys and values of bf16 into pairs of rows, which it does on
// CPUs that multiply bf16 (AMX).
bool packs_keys();

}  // namespace lockstep::tensor
