#include "tests/glass/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tests/glass/host_fault.h"
#include "tests/glass/memory.h"
#include "tests/glass/ops.h"

namespace lockstep::glass {
namespace {

std::atomic<std::int64_t> waits = 0;

// Number 0 of a device is its default one.
struct Streams {
  std::mutex mutex;
  std::array<std::vector<int>, kDevices> numbers;  // the checker's, by stream id
};
Streams& streams() {
  static auto* const one = new Streams;
  return *one;
}
thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_stream{};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, device), id);
}
c10::Stream new_stream(c10::DeviceIndex device) {
  const std::lock_guard lock(streams().mutex);
  std::vector<int>& numbers = streams().numbers[static_cast<std::size_t>(device)];
  const auto id = static_cast<c10::StreamId>(numbers.size());
  numbers.push_back(
      race().new_stream("glass:" + std::to_string(device) + " stream " + std::to_string(id)));
  return stream_of(device, id);
}
c10::Stream stream_now(c10::DeviceIndex device) {
  return stream_of(device, current_stream[static_cast<std::size_t>(device)]);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Event = std::shared_ptr<Clock>;
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device;
  }

  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {kDevice, current_device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = index_of(device);
  }
  c10::Stream getStream(c10::Device device) const override { return stream_now(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(index_of(device), 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return new_stream(index_of(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return new_stream(index_of(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = stream_now(stream.device_index());
    current_stream[static_cast<std::size_t>(stream.device_index())] = stream.id();
    return old;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = race().record(stream_number(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) race().stream_waits(stream_number(stream), **static_cast<Event*>(event));
  }
  // What is over is only known of what somebody has waited for.
  bool queryEvent(void* event) const override {
    return event == nullptr || race().is_over_for_host(**static_cast<Event*>(event));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream& stream) const override {
    return race().is_over_for_host(*race().record(stream_number(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    host_waits_for(stream_number(stream));
  }
  void synchronizeEvent(void* event) const override {
    ++waits;
    if (event != nullptr) race().host_waits(**static_cast<Event*>(event));
    open_what_is_over();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    std::vector<int> all;
    {
      const std::lock_guard lock(streams().mutex);
      all = streams().numbers[static_cast<std::size_t>(device)];
    }
    ++waits;
    for (const int stream : all) race().host_waits_for_stream(stream);
    open_what_is_over();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) race().use_on(address_of(data.get()), stream_number(stream));
  }
  double elapsedTime(void* /*from*/, void* /*to*/, c10::DeviceIndex /*device*/) const override {
    return 0;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    static const auto* const one = new at::Generator(at::detail::createCPUGenerator());
    return *one;
  }
  bool isPinnedPtr(const void* data) const override { return pinned_at(data) != nullptr; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(is_device_memory(data), "not memory of the test device");
    return {kDevice, current_device};
  }
};

}  // namespace

std::int64_t host_waits() { return waits; }

void host_waits_for(int stream) {
  ++waits;
  race().host_waits_for_stream(stream);
  open_what_is_over();
}

c10::DeviceIndex device_now() { return current_device; }

int number_now(c10::DeviceIndex device) { return stream_number(stream_now(device)); }

int stream_number(c10::Stream stream) {
  const std::lock_guard lock(streams().mutex);
  return streams().numbers[static_cast<std::size_t>(stream.device_index())]
                          [static_cast<std::size_t>(stream.id())];
}

void install() {
  static const bool once = [] {
    c10::register_privateuse1_backend("glass");
    install_allocators();
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    for (c10::DeviceIndex device = 0; device < kDevices; ++device) new_stream(device);
    c10::impl::registerDeviceGuard(kDevice, new Guard);
    register_ops();
    tell_host_faults(is_device_memory);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace lockstep::glass
