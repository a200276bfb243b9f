#include "lockstep/cuda/operators.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "lockstep/cuda/kernels.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::cuda {
namespace {

Stream stream_now() { return c10::cuda::getCurrentCUDAStream().stream(); }

template <class T>
void update_as(const optim::AdamW& settings, std::int64_t count, double grad_scale,
               const at::Tensor& grad, const at::Tensor& updated, const at::Tensor& first,
               const at::Tensor& second, std::uint16_t* rounded) {
  launch_update(optim::factors_of<T>(settings, count, settings.weight_decay, grad_scale),
                updated.numel(), grad.const_data_ptr<T>(), updated.mutable_data_ptr<T>(),
                first.mutable_data_ptr<T>(), second.mutable_data_ptr<T>(), rounded, stream_now());
}

void update(at::Tensor& param, const at::Tensor& grad, at::Tensor& first, at::Tensor& second,
            const std::optional<at::Tensor>& master, at::ArrayRef<double> settings,
            std::int64_t count, double grad_scale) {
  const optim::AdamW of = {settings[0], settings[1], settings[2], settings[3], settings[4]};
  const at::Tensor& updated = master ? *master : param;
  auto* const rounded = master ? static_cast<std::uint16_t*>(param.mutable_data_ptr()) : nullptr;
  if (grad.scalar_type() == at::kDouble)
    update_as<double>(of, count, grad_scale, grad, updated, first, second, rounded);
  else
    update_as<float>(of, count, grad_scale, grad, updated, first, second, rounded);
}

void add_squares(at::Tensor& words, const at::Tensor& grad, std::int64_t begin,
                 at::IntArrayRef left_out) {
  TORCH_CHECK(left_out.size() <= 4, "more than two ranges that are counted elsewhere");
  Holes holes;
  for (std::size_t i = 0; i < left_out.size(); i += 2) {
    holes.begin[i / 2] = left_out[i] - begin;
    holes.end[i / 2] = left_out[i + 1] - begin;
  }
  auto* const into = words.mutable_data_ptr<std::int64_t>();
  if (grad.scalar_type() == at::kDouble)
    launch_add_squares(grad.const_data_ptr<double>(), grad.numel(), holes, into, stream_now());
  else
    launch_add_squares(grad.const_data_ptr<float>(), grad.numel(), holes, into, stream_now());
}

void add_losses(at::Tensor& words, const at::Tensor& log_probs, const at::Tensor& labels) {
  auto* const into = words.mutable_data_ptr<std::int64_t>();
  const auto* const given = labels.const_data_ptr<std::int64_t>();
  if (log_probs.scalar_type() == at::kDouble)
    launch_add_losses(log_probs.const_data_ptr<double>(), given, labels.numel(), into,
                      stream_now());
  else
    launch_add_losses(log_probs.const_data_ptr<float>(), given, labels.numel(), into, stream_now());
}

}  // namespace

void install_operators() {
  static const auto* const library = [] {
    auto* const made = new torch::Library(torch::Library::IMPL, "lockstep", c10::DispatchKey::CUDA,
                                          __FILE__, __LINE__);
    made->impl("adamw_", TORCH_FN(update));
    made->impl("add_squares_", TORCH_FN(add_squares));
    made->impl("add_losses_", TORCH_FN(add_losses));
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace lockstep::cuda
