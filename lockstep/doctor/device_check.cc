#include "lockstep/doctor/device_check.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "lockstep/base/exact_sum.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::doctor {
namespace {

using Verdict = Finding::Verdict;
using Tensors = std::vector<at::Tensor>;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

template <class Signature>
c10::TypedOperatorHandle<Signature> op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Numbers of both signs, the same in every run.
at::Tensor numbers(at::IntArrayRef sizes, double step, at::Device on) {
  return at::arange(c10::multiply_integers(sizes), at::kDouble)
      .mul_(step)
      .sin_()
      .view(sizes)
      .to(on, at::kFloat);
}

Tensors swiglu(at::Device on) {
  const at::Tensor pair = numbers({64, 512}, 0.7, on), d = numbers({64, 256}, 0.3, on);
  return {
      op<at::Tensor(const at::Tensor&)>("lockstep::swiglu").call(pair),
      op<at::Tensor(const at::Tensor&, const at::Tensor&)>("lockstep::swiglu_grad").call(pair, d)};
}

Tensors rotate(at::Device on) {
  at::Tensor x = numbers({64, 256}, 0.7, on);
  const at::Tensor angles = at::arange(32 * 32, at::kDouble).view({32, 1, 32}).mul_(0.01);
  op<void(at::Tensor&, const at::Tensor&, const at::Tensor&, double)>("lockstep::rotate_")
      .call(x, angles.cos().to(on, at::kFloat), angles.sin().to(on, at::kFloat), 1.0);
  return {x};
}

Tensors adamw(at::Device on) {
  at::Tensor param = numbers({5000}, 0.7, on), first = at::zeros({5000}, param.options()),
             second = first.clone();
  using Signature =
      void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&,
           const std::optional<at::Tensor>&, at::ArrayRef<double>, std::int64_t, double);
  op<Signature>("lockstep::adamw_")
      .call(param, numbers({5000}, 0.3, on), first, second, std::nullopt,
            {1e-3, 0.9, 0.95, 1e-8, 0.1}, 1, 1.0);
  return {param, first, second};
}

Tensors sums(at::Device on) {
  const auto words = at::TensorOptions(at::kLong).device(on);
  at::Tensor squares = at::zeros({ExactSum::kNumWords}, words), losses = squares.clone();
  op<void(at::Tensor&, const at::Tensor&, std::int64_t, at::IntArrayRef)>("lockstep::add_squares_")
      .call(squares, numbers({5000}, 0.7, on), 0, {300, 700});
  op<void(at::Tensor&, const at::Tensor&, const at::Tensor&)>("lockstep::add_losses_")
      .call(losses, numbers({5000}, 0.3, on), at::full({5000}, 7, words));
  // Words of one sum differ by how they were carried.
  Tensors made;
  for (const at::Tensor& of : {squares.cpu(), losses.cpu()}) {
    ExactSum::Words read;
    std::copy_n(of.const_data_ptr<std::int64_t>(), read.size(), read.begin());
    made.push_back(at::full({1}, ExactSum::from_words(read).result(), at::kDouble));
  }
  return made;
}

struct KernelCheck {
  const char* name;
  Tensors (*run)(at::Device on);
  double room;  // of the largest number
};
// Activations round as their libraries' exponentials and the processor's sums do.
constexpr KernelCheck kKernels[] = {
    {"swiglu", swiglu, 8 * 0x1p-23},
    {"rotary", rotate, 2 * 0x1p-23},
    {"adamw", adamw, 0},
    {"exact sums", sums, 0},
};

Finding check_kernel(const KernelCheck& check, at::Device device) {
  const std::string subject = check.name;
  try {
    const Tensors wanted = check.run(at::kCPU), got = check.run(device);
    double worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor far = got[i].cpu().sub(wanted[i]).abs().max();
      worst = std::max(worst, far.item<double>() / wanted[i].abs().max().item<double>());
    }
    const std::string text = strf("our kernel is %.1e from the CPU's", worst);
    if (worst <= check.room) return {Verdict::kGood, subject, text};
    return {Verdict::kProblem, subject, text + strf(", more than %.1e", check.room),
            "report it with the device's name"};
  } catch (const std::exception& error) {
    return {Verdict::kProblem, subject,
            std::string("our kernel failed: ") + first_line(error.what()),
            "kernels are built for sm_80, sm_90 and sm_100"};
  }
}

Finding check_all_reduce(const comm::Backend& backend) {
  const int devices = backend.num_devices();
  const std::string name(backend.name);
  try {
    const comm::WorldWrap on_devices = backend.device_per_thread();
    comm::run_local(devices, [&](comm::World& host) {
      const auto world = on_devices(host);
      const Deadline deadline = Deadline::after(Seconds{60});
      std::vector<Rank> all;
      for (int rank = 0; rank < devices; ++rank) all.push_back(Rank{rank});
      const auto group = world->connect_device("doctor", "doctor", all, deadline);
      const at::Tensor sum =
          at::full({1000}, world->rank().value + 1.0,
                   at::TensorOptions(at::kFloat).device(tensor::torch_device_of(world->device())));
      group->all_reduce(tensor::as_buffer(sum), deadline).wait();
      if (sum.cpu().ne(devices * (devices + 1) / 2.0).any().item<bool>())
        throw std::runtime_error("wrong sums");
    });
    return {Verdict::kGood, name, join_parts("an all_reduce among ", devices, " works")};
  } catch (const std::exception& error) {
    return {Verdict::kProblem, name,
            std::string("an all_reduce failed: ") + first_line(error.what()),
            "NCCL_DEBUG=INFO says more"};
  }
}

}  // namespace

std::vector<Finding> check_devices(DeviceKind kind) {
  const comm::Backend* const backend = comm::backend_for(kind);
  if (const auto can = comm::check_backend(kind); !can.ok())
    return {{Verdict::kProblem, std::string(to_text(kind)), can.error().message, can.error().help}};
  std::vector<Finding> findings;
  for (int i = 0; i < backend->num_devices(); ++i)
    findings.push_back({Verdict::kGood, join_parts("device ", i), backend->describe_device(i)});
  findings.push_back(check_all_reduce(*backend));
  for (const KernelCheck& check : kKernels)
    findings.push_back(check_kernel(check, tensor::torch_device_of({kind, 0})));
  return findings;
}

}  // namespace lockstep::doctor
