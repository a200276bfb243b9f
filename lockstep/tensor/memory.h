// Every byte of CPU tensor memory, counted as it is taken and returned: the truth that memory
// predictions are checked against. Blocks go through a bounded cache (base/block_cache.h), because
// a ZeRO-3 gather into fresh pages would cost four times the copy itself.
//
// Not seen: scratch inside MKL and oneDNN, autograd's own objects, and what a communication backend
// declares apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace lockstep::tensor {

enum class MemoryKind : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kOther
};
inline constexpr int kNumMemoryKinds = 6;

std::string_view to_text(MemoryKind kind);

// What one rank uses. Ranks that are threads have one each; a process has one by default. Bytes as
// asked for, without rounding. Must outlive the memory charged to it. Any thread may read it.
class MemoryAccount {
 public:
  std::int64_t live() const { return live_; }
  std::int64_t live(MemoryKind kind) const { return of(kind).live; }
  std::int64_t peak() const { return peak_; }  // since reset_peak, all kinds together
  std::int64_t peak(MemoryKind kind) const { return of(kind).peak; }
  std::int64_t allocations() const { return allocations_; }
  void reset_peak();  // to what is live now

  void take(MemoryKind kind, std::int64_t bytes);
  void give(MemoryKind kind, std::int64_t bytes);

 private:
  struct Count {
    std::atomic<std::int64_t> live = 0, peak = 0;
  };
  const Count& of(MemoryKind kind) const { return kinds_[static_cast<std::size_t>(kind)]; }

  std::atomic<std::int64_t> live_ = 0, peak_ = 0, allocations_ = 0;
  std::array<Count, kNumMemoryKinds> kinds_;
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

// Charges what this thread allocates, while the object lives, to an account or to a kind. A block
// is credited where it was charged, whichever thread returns it.
class ChargeTo {
 public:
  explicit ChargeTo(MemoryAccount& account);
  explicit ChargeTo(MemoryKind kind);
  ~ChargeTo();
  ChargeTo(const ChargeTo&) = delete;
  ChargeTo& operator=(const ChargeTo&) = delete;

 private:
  MemoryAccount* saved_account_;
  MemoryKind saved_kind_;
};

// Whether LibTorch's attention copies keys and values of bf16 into pairs of rows, which it does on CPUs
// that multiply bf16 (AMX).
bool packs_keys();

}  // namespace lockstep::tensor
