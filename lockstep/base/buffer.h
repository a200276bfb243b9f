// Memory someone else owns, described just enough to be moved, hashed or reduced without knowing
// tensors. A Buffer never frees; whoever made the memory keeps it alive until the operation that
// uses it has been waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/enum_names.h"

namespace lockstep {

// By LibTorch's names; the last stands for a device that somebody adds to it.
enum class DeviceKind : std::uint8_t { kCpu, kCuda, kPrivateUse1 };
inline constexpr EnumNames<DeviceKind, 3> kDeviceKinds = {{"cpu", "cuda", "privateuseone"}};
inline std::string_view to_text(DeviceKind kind) { return kDeviceKinds.name_of(kind); }

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::int16_t index = 0;
  bool operator==(const Device&) const = default;
};

struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;  // elements
  DType dtype = DType::kU8;
  Device device;

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
  // `num` elements from element `first`. REQUIRES: 0 <= first, first + num <= count.
  Buffer slice(std::int64_t first, std::int64_t num) const {
    LS_CHECK(first >= 0 && num >= 0 && first <= count && num <= count - first, num,
             " elements from element ", first, " of ", count);
    return {static_cast<std::byte*>(data) + first * static_cast<std::int64_t>(size_of(dtype)), num,
            dtype, device};
  }
};

struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kU8;
  Device device;

  ConstBuffer() = default;
  ConstBuffer(const void* d, std::int64_t n, DType t, Device where = {})
      : data(d), count(n), dtype(t), device(where) {}
  ConstBuffer(const Buffer& b)  // NOLINT(google-explicit-constructor)
      : data(b.data), count(b.count), dtype(b.dtype), device(b.device) {}

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
};

}  // namespace lockstep
