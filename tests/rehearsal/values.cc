#include "tests/rehearsal/values.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/glass/race.h"
#include "tests/rehearsal/rehearsal.h"

namespace lockstep::rehearsal {
namespace {

using glass::Access;
using glass::Clock;
using glass::race;

// Above zero: inside an operator, whose own calls are its business.
thread_local int depth = 0;

// ---- the checker listens to the runtime

std::mutex mutex;
std::map<std::pair<int, void*>, int> streams;  // the checker's numbers
std::map<void*, std::shared_ptr<Clock>> events;
std::map<std::string, std::int64_t> valueless;

int number_of(void* stream, int device) {
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = streams.try_emplace({stream == nullptr ? device : -1, stream}, 0);
  if (is_new)
    found->second =
        race().new_stream(stream == nullptr ? "the default stream of cuda:" + std::to_string(device)
                                            : "stream " + std::to_string(streams.size()));
  return found->second;
}
int number_now(int device) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Stream now =
      guard.getStream(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return number_of(guard.getStreamNativeHandle(now), device);
}
std::shared_ptr<Clock> clock_of(void* event) {
  const std::lock_guard lock(mutex);
  const auto found = events.find(event);
  return found == events.end() ? nullptr : found->second;
}
std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uint64_t>(data); }
Access bytes_at(const void* data, std::size_t bytes, bool writes) {
  return {address_of(data), address_of(data) + bytes, writes};
}

const Listener kListener = {
    .recorded =
        [](void* event, void* stream, int device) {
          auto clock = race().record(number_of(stream, device));
          const std::lock_guard lock(mutex);
          events[event] = std::move(clock);
        },
    .stream_waits =
        [](void* stream, int device, void* event) {
          if (const auto clock = clock_of(event))
            race().stream_waits(number_of(stream, device), *clock);
        },
    .host_waits_for_event =
        [](void* event) {
          if (const auto clock = clock_of(event)) race().host_waits(*clock);
        },
    .host_waits_for_stream =
        [](void* stream, int device) { race().host_waits_for_stream(number_of(stream, device)); },
    .host_waits_for_device =
        [](int /*device*/) {
          std::vector<int> all;
          {
            const std::lock_guard lock(mutex);
            for (const auto& [key, number] : streams) all.push_back(number);
          }
          for (const int number : all) race().host_waits_for_stream(number);
        },
    // A poll learns that work is over the third time; then its thread may rely on it.
    .is_over =
        [](void* event) {
          const auto clock = clock_of(event);
          if (!clock || race().is_over_for_host(*clock)) return true;
          thread_local std::map<void*, std::pair<const Clock*, int>> polls;
          auto& [of, count] = polls[event];
          if (of != clock.get()) of = clock.get(), count = 0;
          if (++count < 3) return false;
          race().host_waits(*clock);
          return true;
        },
    .copied =
        [](const void* to, const void* from, std::size_t bytes, void* stream, int device) {
          if (depth > 0) return;
          race().launch(number_of(stream, device), "cudaMemcpyAsync",
                        {bytes_at(from, bytes, false), bytes_at(to, bytes, true)});
        },
    .touched =
        [](const char* name, const void* in, std::size_t in_bytes, const void* out,
           std::size_t out_bytes, void* stream, int device) {
          race().launch(
              number_of(stream, device), name,
              {bytes_at(in, in == out ? 0 : in_bytes, false), bytes_at(out, out_bytes, true)});
        },
    .refused = [](const char* why) { race().report(why); }};

// Blocks of the caching allocator, from their allocation to their return.
void follow_blocks(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  if (entry.action_ == Entry::ALLOC)
    race().take(entry.addr_, entry.size_, number_of(entry.stream_, entry.device_));
  if (entry.action_ == Entry::FREE_REQUESTED) race().give(entry.addr_);
}

Access access_of(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto bytes = static_cast<std::size_t>((last + 1) * tensor.element_size());
  return bytes_at(tensor.const_data_ptr(), bytes, writes);
}

// ---- values

// The same memory for the CPU's kernels.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  void* const data = tensor.storage().mutable_data();
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
      c10::DataPtr(data != nullptr ? rehearsal_host_view(data) : nullptr, c10::Device(c10::kCPU)),
      nullptr, /*resizable=*/false);
  at::Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = cpu.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return cpu;
}

template <class Fn>
c10::IValue with_each(const c10::IValue& value, Fn fn) {
  if (value.isTensor()) return fn(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(fn(tensor));
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return value;
}
std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

class WithValues final : public c10::OperatorKernel {
 public:
  explicit WithValues(c10::SafeKernelFunction kernel) : original_(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    if (depth > 0) return original_.callBoxed(op, keys, stack);
    const auto& schema = op.schema();
    const auto name = c10::toString(op.operator_name());
    const std::size_t n = schema.arguments().size(), first = stack->size() - n;
    const std::vector<c10::IValue> given(stack->begin() + static_cast<std::ptrdiff_t>(first),
                                         stack->end());
    const auto writes = [&](std::size_t i) {
      const auto* const alias = schema.arguments()[i].alias_info();
      return alias != nullptr && alias->isWrite();
    };
    int device = 0;
    std::vector<Access> accesses;
    torch::jit::Stack cpu;
    for (std::size_t i = 0; i < n; ++i)
      cpu.push_back(with_each(given[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.is_cuda()) device = tensor.device().index();
        accesses.push_back(access_of(tensor, writes(i)));
        // What is written stays as it is until CUDA's side has run.
        return writes(i) && tensor.defined() ? on_cpu(tensor).clone() : on_cpu(tensor);
      }));
    const int stream = number_now(device);
    race().launch(stream, name, accesses);
    const torch::jit::Stack written = cpu;
    const bool has_values = compute(op, name, cpu);
    ++depth;
    try {
      original_.callBoxed(op, keys, stack);
    } catch (...) {
      --depth;
      throw;
    }
    --depth;
    if (!has_values) return;
    for (std::size_t i = 0; i < n; ++i)
      if (writes(i)) put(name, tensors_in(given[i]), tensors_in(written[i]));
    const std::size_t outputs = schema.returns().size(), begin = stack->size() - outputs;
    for (std::size_t i = 0; i < outputs && i < cpu.size(); ++i) {
      if (schema.returns()[i].alias_info() != nullptr) continue;
      const std::vector<at::Tensor> made = tensors_in((*stack)[begin + i]);
      put(name, made, tensors_in(cpu[i]));
      for (const at::Tensor& tensor : made) race().also(stream, name, access_of(tensor, true));
    }
  }

 private:
  static bool compute(const c10::OperatorHandle& op, const std::string& name,
                      torch::jit::Stack& stack) {
    try {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      return true;
    } catch (const c10::NotImplementedError&) {
      const std::lock_guard lock(mutex);
      ++valueless[name];
      return false;
    }
  }
  static void put(const std::string& name, const std::vector<at::Tensor>& to,
                  const std::vector<at::Tensor>& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!to[i].defined() || !from[i].defined() || from[i].numel() == 0) continue;
      TORCH_CHECK(to[i].sizes() == from[i].sizes() && to[i].dtype() == from[i].dtype(), name,
                  ": CUDA makes ", to[i].sizes(), " ", to[i].dtype(), ", the CPU ", from[i].sizes(),
                  " ", from[i].dtype());
      on_cpu(to[i]).copy_(from[i]);
    }
  }

  c10::SafeKernelFunction original_;
};

void put_values_into(const char* library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  auto* const made =
      new torch::Library(torch::Library::IMPL, library, c10::DispatchKey::CUDA, __FILE__, __LINE__);
  const std::string prefix = std::string(library) + "::";
  const std::set<std::string> as_they_are = {"empty.memory_format",
                                             "empty_strided",
                                             "view",
                                             "as_strided",
                                             "_reshape_alias",
                                             "unfold",
                                             "resize_",
                                             "record_stream",
                                             "_local_scalar_dense",
                                             "set_.source_Storage_storage_offset",
                                             "set_.source_Storage",
                                             "set_",
                                             "set_.source_Tensor",
                                             "is_pinned",
                                             "_pin_memory"};
  auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA);
  if (prefix == "aten::") names.emplace_back("aten::copy_", "");
  for (const c10::OperatorName& name : names) {
    const auto op = dispatcher.findSchema(name);
    if (!name.name.starts_with(prefix) || !op) continue;
    const std::string own = c10::toString(name).substr(prefix.size());
    if (as_they_are.contains(own)) continue;
    made->impl(own.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<WithValues>(
                                op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA))));
  }
}

}  // namespace

void install_values() {
  rehearsal_listen(&kListener);
  at::globalContext().lazyInitDevice(c10::kCUDA);  // before that there is nothing to attach to
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(follow_blocks);
  put_values_into("aten");
  put_values_into("lockstep");
}

int stream_number_now(int device) { return number_now(device); }

std::map<std::string, std::int64_t> without_values() {
  const std::lock_guard lock(mutex);
  return valueless;
}

}  // namespace lockstep::rehearsal
