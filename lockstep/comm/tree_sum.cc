#include "lockstep/comm/tree_sum.h"

#include <array>
#include <bit>
#include <type_traits>

#include "lockstep/base/check.h"

namespace lockstep::comm {
namespace {

struct BFloat16 {
  std::uint16_t bits;
};

// From the type that is stored to the one that is added, and back.
template <class T>
T widen(T x) {
  return x;
}
float widen(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

template <class T>
void narrow(T x, T& stored) {
  stored = x;
}
void narrow(float x, BFloat16& stored) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  stored.bits = static_cast<std::uint16_t>(x != x ? (bits >> 16) | 0x40  // stays a NaN
                                                  : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class A>
A plus(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
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
    if (hi - lo == 1) {
      for (std::int64_t i = 0; i < length_; ++i) sum[i] = widen(leaf(lo)[i]);
      return;
    }
    const std::size_t half = std::bit_ceil(hi - lo) / 2;
    sum_range(lo, lo + half, depth + 1, sum);
    if (hi - lo - half == 1) return add(leaf(lo + half), sum);
    A* right = partials_[depth].data();
    sum_range(lo + half, hi, depth + 1, right);
    add(right, sum);
  }

 private:
  const T* leaf(std::size_t i) const { return static_cast<const T*>(in_[i]) + first_; }
  template <class Summand>
  void add(const Summand* summands, A* sum) const {
    for (std::int64_t i = 0; i < length_; ++i) sum[i] = plus(sum[i], widen(summands[i]));
  }

  std::span<const void* const> in_;
  std::int64_t first_, length_;
  std::array<std::array<A, kTile>, kMaxDepth> partials_;
};

template <class T, class A>
void sum_all(std::span<const void* const> in, void* result, std::int64_t count) {
  T* const out = static_cast<T*>(result);
  if constexpr (std::is_floating_point_v<T>)
    if (in.size() == 2) {  // the common case; one pass without a tile in between
      const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
      for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
      return;
    }
  std::array<A, kTile> sum;
  for (std::int64_t first = 0; first < count; first += kTile) {
    const std::int64_t length = std::min(kTile, count - first);
    TileSummer<T, A>(in, first, length).sum_range(0, in.size(), 0, sum.data());
    for (std::int64_t i = 0; i < length; ++i) narrow(sum[i], out[first + i]);
  }
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
      return sum_all<double, double>(in, out, count);
    case DType::kF32:
      return sum_all<float, float>(in, out, count);
    case DType::kBF16:
      return sum_all<BFloat16, float>(in, out, count);
    case DType::kI64:
      return sum_all<std::int64_t, std::int64_t>(in, out, count);
    case DType::kI32:
      return sum_all<std::int32_t, std::int32_t>(in, out, count);
    default:
      LS_CHECK(false);
  }
}

}  // namespace lockstep::comm
