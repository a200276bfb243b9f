#include "lockstep/base/block_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

void* allocate(std::size_t bytes) {
  void* block = std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

BlockCache::~BlockCache() { trim(); }

BlockCache::SizeClass BlockCache::class_of(std::size_t bytes) {
  if (bytes < kSmallest) return {-1, bytes};
  const int doubling = static_cast<int>(std::bit_width(bytes)) - 1;
  const std::size_t step = std::size_t{1} << (doubling - 3);
  const std::size_t rounded = round_up(bytes, step);  // perhaps up to the next doubling
  const int base = static_cast<int>(std::bit_width(rounded)) - 1;
  const auto part = static_cast<int>((rounded >> (base - 3)) & 7);
  const int index = 8 * (base - static_cast<int>(std::bit_width(kSmallest)) + 1) + part;
  return {index < kNumClasses ? index : -1, rounded};
}

void* BlockCache::take(std::size_t bytes) {
  const SizeClass size_class = class_of(bytes);
  if (size_class.index >= 0) {
    std::lock_guard lock(mutex_);
    auto& blocks = free_[size_class.index];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      kept_ -= size_class.bytes;
      return block;
    }
  }
  return allocate(size_class.bytes);
}

void BlockCache::give(void* block, std::size_t bytes) {
  const SizeClass size_class = class_of(bytes);
  if (size_class.index >= 0) {
    std::lock_guard lock(mutex_);
    if (kept_ + size_class.bytes <= bound_) {
      free_[size_class.index].push_back(block);
      kept_ += size_class.bytes;
      return;
    }
  }
  std::free(block);
}

std::shared_ptr<std::byte[]> BlockCache::lend(std::size_t bytes) {
  const std::size_t some = std::max<std::size_t>(bytes, 1);
  return {static_cast<std::byte*>(take(some)), [=, this](std::byte* block) { give(block, some); }};
}

std::size_t BlockCache::kept() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

void BlockCache::trim() {
  std::lock_guard lock(mutex_);
  for (auto& blocks : free_) {
    for (void* block : blocks) std::free(block);
    blocks.clear();
  }
  kept_ = 0;
}

}  // namespace lockstep
