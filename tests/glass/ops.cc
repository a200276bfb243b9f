#include "tests/glass/ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/glass/cuda_only.h"
#include "tests/glass/device.h"
#include "tests/glass/memory.h"

namespace lockstep::glass {
namespace {

// ops that make or move memory

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

// As CUDA: without non_blocking the host waits; with it, memory that is not pinned makes it wait.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool from_host = !from.is_privateuseone(), to_host = !to.is_privateuseone();
  const int stream = number_now((to_host ? from : to).device().index());
  Pinned* host = nullptr;
  const auto for_kernel = [&](const at::Tensor& tensor) {
    if (tensor.is_privateuseone()) return on_cpu(tensor);
    host = pinned_at(tensor.const_data_ptr());
    if (host == nullptr) return tensor;
    const auto offset = static_cast<const char*>(tensor.const_data_ptr()) - host->data;
    return at::from_blob(host->kernel + offset, tensor.sizes(), tensor.strides(), tensor.options());
  };
  const at::Tensor source = for_kernel(from), target = for_kernel(to);
  race().launch(stream,
                from_host ? "copy from the host"
                : to_host ? "copy to the host"
                          : "copy",
                {access_of(from, false), access_of(to, true)});
  target.copy_(source);
  if (!from_host && !to_host) return to;
  if (host != nullptr) race().use_on(address_of(host->data), stream);
  if (non_blocking && host != nullptr)
    close_for_host(*host, stream, to_host);
  else
    host_waits_for(stream);
  return to;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  const int stream = number_now(tensor.device().index());
  race().launch(stream, "item", {access_of(tensor, false)});
  host_waits_for(stream);
  return at::native::_local_scalar_dense_cpu(on_cpu(tensor));
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  race().use_on(address_of(tensor.storage().data()), stream_number(stream));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

// all other ops: the CPU's kernel on the same memory

// What a CPU kernel made moves to the device.
at::Tensor adopt(const at::Tensor& made, c10::DeviceIndex device, const std::string& op) {
  const c10::DeviceGuard guard(c10::Device(kDevice, device));
  at::Tensor moved = at::detail::empty_strided_generic(
      made.sizes(), made.strides(), &allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), made.scalar_type());
  if (made.numel() > 0) {
    const Access from = access_of(made, false);
    std::memcpy(host_view(moved.data_ptr()), made.const_data_ptr(), from.end - from.begin);
    race().also(number_now(device), op, access_of(moved, true));
  }
  return moved;
}

class Call {
 public:
  explicit Call(std::string op) : op_(std::move(op)) {}

  // The argument for the CPU's kernel. Aliases stay aliases.
  at::Tensor give(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_privateuseone()) {
      TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0, op_, ": a tensor on ", tensor.device(),
                  " among those of the test device");
      return tensor;
    }
    const c10::DeviceIndex index = tensor.device().index();
    TORCH_CHECK(device < 0 || device == index, op_, ": tensors of devices ", device, " and ",
                index);
    device = index;
    accesses.push_back(access_of(tensor, writes));
    at::Tensor cpu = alias(tensor, writes);
    pairs_.push_back({tensor, cpu, writes});
    return cpu;
  }
  // Outputs that came without elements, and that the kernel gave some.
  void finish() {
    for (const Pair& pair : pairs_) {
      if (!pair.writes || pair.device.sizes() == pair.cpu.sizes()) continue;
      const at::Tensor made = adopt(pair.cpu, device, op_);
      auto* const impl = pair.device.unsafeGetTensorImpl();
      impl->set_storage_keep_dtype(made.storage());
      impl->set_storage_offset(made.storage_offset());
      impl->set_sizes_and_strides(made.sizes(), made.strides());
    }
  }
  std::vector<at::Tensor> operands() const {
    std::vector<at::Tensor> all;
    for (const Pair& pair : pairs_) all.push_back(pair.device);
    return all;
  }
  at::Tensor take(const at::Tensor& cpu) const {
    if (!cpu.defined()) return cpu;
    for (const Pair& pair : pairs_)
      if (pair.cpu.is_same(cpu)) return pair.device;
    for (const Pair& pair : pairs_)
      TORCH_CHECK(!pair.cpu.storage().is_alias_of(cpu.storage()), op_,
                  " returns a view, for which the test device has no row");
    return adopt(cpu, device, op_);
  }
  at::Tensor alias(const at::Tensor& tensor, bool writes) {
    c10::Storage& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage) {
      void* const data = tensor.storage().mutable_data();
      storage = c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                             c10::DataPtr(data != nullptr ? host_view(data) : nullptr,
                                          c10::Device(c10::DeviceType::CPU)),
                             c10::GetCPUAllocator(), /*resizable=*/writes && tensor.numel() == 0);
    }
    at::Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    auto* const impl = cpu.unsafeGetTensorImpl();
    impl->set_storage_offset(tensor.storage_offset());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    return cpu;
  }

  c10::DeviceIndex device = -1;
  std::vector<Access> accesses;

 private:
  struct Pair {
    at::Tensor device, cpu;
    bool writes;
  };
  const std::string op_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
  std::vector<Pair> pairs_;
};

std::string name_of(const c10::OperatorName& op) {
  return op.overload_name.empty() ? op.name : op.name + "." + op.overload_name;
}

const std::set<std::string>& cuda_ops() {
  static const auto* const names = [] {
    auto* const read = new std::set<std::string>;
    std::ifstream file(LOCKSTEP_CUDA_OPS);
    for (std::string line; std::getline(file, line);) read->insert(line);
    TORCH_CHECK(!read->empty(), "cannot read ", LOCKSTEP_CUDA_OPS);
    return read;
  }();
  return *names;
}

template <class Fn>
void for_each_tensor(c10::IValue& value, Fn fn) {
  if (value.isTensor()) {
    value = fn(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(fn(tensor));
    value = c10::IValue(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      list.push_back(tensor ? std::optional(fn(*tensor)) : std::nullopt);
    value = c10::IValue(list);
  }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string name = name_of(op.operator_name());
  TORCH_CHECK(!name.starts_with("aten::") || cuda_ops().contains(name), name,
              " has no CUDA kernel, so the test device has none either");
  Call call(name);
  const std::size_t first = stack->size() - schema.arguments().size();
  for (std::size_t i = first; i < stack->size(); ++i) {
    const auto* const alias = schema.arguments()[i - first].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    c10::IValue& value = (*stack)[i];
    if (value.isDevice()) value = c10::Device(c10::DeviceType::CPU);
    for_each_tensor(value, [&](const at::Tensor& tensor) { return call.give(tensor, writes); });
  }
  if (call.device < 0) call.device = device_now();
  const std::int64_t inside = taken_inside(name, call.operands());
  race().launch(number_now(call.device), name, call.accesses);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.finish();
  for (std::size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    for_each_tensor((*stack)[i], [&](const at::Tensor& tensor) { return call.take(tensor); });
  if (inside > 0)
    at::empty({inside}, at::dtype(at::kByte).device(c10::DeviceType::PrivateUse1, call.device));
}

// Ops that have a kernel on real devices and a composite of other ops: here the composite would be
// taken, on CUDA the kernel is.
void prefer_kernels(torch::Library& aten) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CPU)) {
    const auto op = dispatcher.findSchema(name);
    if (!name.name.starts_with("aten::") || !op || !cuda_ops().contains(name_of(name))) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      aten.impl(name_of(name).substr(6).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
}

}  // namespace

void register_ops() {
  constexpr auto kKey = c10::DispatchKey::PrivateUse1;
  static auto* const any = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  static auto* const aten =
      new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  aten->impl("empty.memory_format", TORCH_FN(empty));
  aten->impl("empty_strided", TORCH_FN(empty_strided));
  aten->impl("view", TORCH_FN(at::native::view));
  aten->impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten->impl("unfold", TORCH_FN(at::native::unfold));
  aten->impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten->impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  aten->impl("_copy_from", TORCH_FN(copy_from));
  aten->impl("_local_scalar_dense", TORCH_FN(local_scalar));
  aten->impl("record_stream", TORCH_FN(record_stream));
  prefer_kernels(*aten);
}

Access access_of(const at::Tensor& tensor, bool writes) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const std::uint64_t begin = address_of(tensor.const_data_ptr());
  return {begin, begin + static_cast<std::uint64_t>((last + 1) * tensor.element_size()), writes};
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  return tensor.is_privateuseone() ? Call("").alias(tensor, false) : tensor;
}

}  // namespace lockstep::glass
