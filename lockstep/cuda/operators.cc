#include "lockstep/cuda/operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "lockstep/cuda/kernels.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/as_buffer.h"

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
  TORCH_CHECK(left_out.size() <= 2 * Holes::kMost, "too many ranges that are counted elsewhere");
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

void rotate(at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, double sign) {
  const std::int64_t head_dim = 2 * cosine.size(-1);
  TORCH_CHECK(x.stride(1) == 1 && cosine.is_contiguous() && sine.is_contiguous(), "rows of heads");
  const Rotation of = {x.size(0), x.stride(0),    x.size(1) / head_dim,
                       head_dim,  cosine.size(0), sign};
  launch_rotate(tensor::dtype_of(x.scalar_type()), x.mutable_data_ptr(), cosine.const_data_ptr(),
                sine.const_data_ptr(), of, stream_now());
}

GluShape shape_of(const at::Tensor& pair) {
  TORCH_CHECK(pair.is_contiguous(), "rows of gate and up");
  return {pair.size(0), pair.size(1) / 2};
}
at::Tensor swiglu(const at::Tensor& pair) {
  const GluShape of = shape_of(pair);
  at::Tensor made = at::empty({of.rows, of.columns}, pair.options());
  launch_swiglu(tensor::dtype_of(pair.scalar_type()), pair.const_data_ptr(),
                made.mutable_data_ptr(), of, stream_now());
  return made;
}
at::Tensor swiglu_grad(const at::Tensor& pair, const at::Tensor& d) {
  const GluShape of = shape_of(pair);
  TORCH_CHECK(d.is_contiguous(), "the gradient of SwiGLU");
  at::Tensor made = at::empty(pair.sizes(), pair.options());
  launch_swiglu_grad(tensor::dtype_of(pair.scalar_type()), d.const_data_ptr(),
                     pair.const_data_ptr(), made.mutable_data_ptr(), of, stream_now());
  return made;
}

}  // namespace

void install_operators() {
  static const auto* const library = [] {
    auto* const made = new torch::Library(torch::Library::IMPL, "lockstep", c10::DispatchKey::CUDA,
                                          __FILE__, __LINE__);
    made->impl("adamw_", TORCH_FN(update));
    made->impl("add_squares_", TORCH_FN(add_squares));
    made->impl("add_losses_", TORCH_FN(add_losses));
    made->impl("rotate_", TORCH_FN(rotate));
    made->impl("swiglu", TORCH_FN(swiglu));
    made->impl("swiglu_grad", TORCH_FN(swiglu_grad));
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace lockstep::cuda
