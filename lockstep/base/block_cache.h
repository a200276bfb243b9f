// Large memory blocks that are kept after use. The operating system hands out a fresh block page by
// page on first touch, which costs several times what filling it does; a step of training takes and
// returns the same sizes over and over, so a bounded cache makes all but the first of them free.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep {

// Any thread may call it. Blocks are aligned to 64 bytes and hold arbitrary bytes.
class BlockCache {
 public:
  // Keeps at most `bound` bytes of returned blocks.
  explicit BlockCache(std::size_t bound) : bound_(bound) {}
  ~BlockCache();
  BlockCache(BlockCache&&) = delete;

  // A block of at least `bytes`. Throws std::bad_alloc.
  void* take(std::size_t bytes);
  // Returns what take(bytes) gave; `bytes` must be the same number.
  void give(void* block, std::size_t bytes);
  // A block that is returned by itself. The cache must outlive it.
  std::shared_ptr<std::byte[]> lend(std::size_t bytes);

  std::size_t kept() const;  // bytes in the cache now
  void trim();               // returns all of them to the system

 private:
  // Eight classes per doubling from 64 KiB on, so a block is at most an eighth larger than asked
  // for.
  static constexpr std::size_t kSmallest = std::size_t{1} << 16;
  static constexpr int kNumClasses = 8 * 32;
  struct SizeClass {
    int index;          // negative: too small or too large to keep
    std::size_t bytes;  // what a block of the class really holds
  };
  static SizeClass class_of(std::size_t bytes);

  const std::size_t bound_;
  mutable std::mutex mutex_;
  std::size_t kept_ = 0;
  std::array<std::vector<void*>, kNumClasses> free_;
};

}  // namespace lockstep
