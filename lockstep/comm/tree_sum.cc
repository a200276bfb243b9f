#include "lockstep/comm/tree_sum.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "lockstep/base/check.h"

namespace lockstep::comm {
namespace {

struct BFloat16 {
  std::uint16_t bits;
};

float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

BFloat16 narrow(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};  // stays a NaN
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// A tile fits the first-level cache together with the partial sums of a deep tree.
constexpr std::int64_t kTile = 1024;
constexpr int kMaxDepth = 32;

// Stored type T, added as type A.
template <class T, class A>
class TileSummer {
 public:
  TileSummer(std::span<const void* const> in, std::int64_t first, std::int64_t length)
      : in_(in), first_(first), length_(length) {}

  // Leaves tree(in[lo], ..., in[hi-1]) in `sum`.
  void sum_range(std::size_t lo, std::size_t hi, int depth, A* sum) {
    LS_CHECK(depth < kMaxDepth);
    if (hi - lo == 1) return load(lo, sum);
    const std::size_t half = std::bit_ceil(hi - lo) / 2;
    sum_range(lo, lo + half, depth + 1, sum);
    if (hi - lo - half == 1 && std::is_same_v<T, A>) return add(leaf(lo + half), sum);
    A* right = partials_[static_cast<std::size_t>(depth)].data();
    sum_range(lo + half, hi, depth + 1, right);
    for (std::int64_t i = 0; i < length_; ++i) sum[i] = plus(sum[i], right[i]);
  }

 private:
  static A plus(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
  const T* leaf(std::size_t i) const { return static_cast<const T*>(in_[i]) + first_; }
  void load(std::size_t i, A* sum) const {
    const T* from = leaf(i);
    if constexpr (std::is_same_v<T, A>) {
      std::memmove(sum, from, static_cast<std::size_t>(length_) * sizeof(T));
    } else {
      for (std::int64_t k = 0; k < length_; ++k) sum[k] = widen(from[k]);
    }
  }
  void add(const T* from, A* sum) const {
    if constexpr (std::is_same_v<T, A>)
      for (std::int64_t i = 0; i < length_; ++i) sum[i] = plus(sum[i], from[i]);
  }

  std::span<const void* const> in_;
  std::int64_t first_, length_;
  std::array<std::array<A, kTile>, kMaxDepth> partials_;
};

template <class T, class A>
void sum_tiles(std::span<const void* const> in, T* out, std::int64_t count) {
  std::array<A, kTile> sum;
  for (std::int64_t first = 0; first < count; first += kTile) {
    const std::int64_t length = std::min(kTile, count - first);
    TileSummer<T, A> tile(in, first, length);
    tile.sum_range(0, in.size(), 0, sum.data());
    if constexpr (std::is_same_v<T, A>) {
      std::memcpy(out + first, sum.data(), static_cast<std::size_t>(length) * sizeof(T));
    } else {
      for (std::int64_t i = 0; i < length; ++i)
        out[first + i] = narrow(sum[static_cast<std::size_t>(i)]);
    }
  }
}

// Two ranks are the common case; one pass without a tile in between.
template <class T>
void sum_pair(const T* a, const T* b, T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

}  // namespace

bool can_sum(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kI64 || dtype == DType::kI32;
}

void tree_sum(std::span<const void* const> in, void* out, std::int64_t count, DType dtype) {
  LS_CHECK(!in.empty() && can_sum(dtype), "tree_sum of ", in.size(), " inputs of ", to_text(dtype));
  switch (dtype) {
    case DType::kF64:
      if (in.size() == 2)
        return sum_pair(static_cast<const double*>(in[0]), static_cast<const double*>(in[1]),
                        static_cast<double*>(out), count);
      return sum_tiles<double, double>(in, static_cast<double*>(out), count);
    case DType::kF32:
      if (in.size() == 2)
        return sum_pair(static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                        static_cast<float*>(out), count);
      return sum_tiles<float, float>(in, static_cast<float*>(out), count);
    case DType::kBF16:
      return sum_tiles<BFloat16, float>(in, static_cast<BFloat16*>(out), count);
    case DType::kI64:
      return sum_tiles<std::int64_t, std::int64_t>(in, static_cast<std::int64_t*>(out), count);
    case DType::kI32:
      return sum_tiles<std::int32_t, std::int32_t>(in, static_cast<std::int32_t*>(out), count);
    default:
      LS_CHECK(false);
  }
}

}  // namespace lockstep::comm
