// Kernels of parts for an accelerator, out of LibTorch's operators that CUDA has: whole tensors,
// and nothing that makes the host wait. They are the third column of the table in kernels.cc, where
// a kind's kernel for the CPU would read host memory or work on a few rows at a time.
//
// Attention of bf16 is LibTorch's flash kernel; f32 and f64, which `verify` uses, capped scores,
// heads that it does not take, and windows over a context group write all scores of a microbatch
// down. Losses are added as words
// of an ExactSum on the device.
#pragma once

#include "lockstep/nn/pass_run.h"

namespace lockstep::nn::device {

// Subtracts those values whose label is valid from an ExactSum's words.
void add_less_values(at::Tensor words, const at::Tensor& values, const at::Tensor& labels);

void rms_norm(PassRun& r);
void rms_norm_again(PassRun& r);
void rms_norm_grad(PassRun& r);
void layer_norm(PassRun& r);
void layer_norm_again(PassRun& r);
void layer_norm_grad(PassRun& r);
void squares(PassRun& r);
void wide_norm(PassRun& r);
void row_dots(PassRun& r);
void wide_norm_grad(PassRun& r);

void linear_weight(PassRun& r);
void logits(PassRun& r);
void bias_sum(PassRun& r);

// device_attention.cc
void attention(PassRun& r);
void attention_grad(PassRun& r);
void block_attention(PassRun& r);
void more_attention(PassRun& r);
void block_attention_grad(PassRun& r);
void more_attention_grad(PassRun& r);

// device_router.cc
void route(PassRun& r);
void route_grad(PassRun& r);
void sigmoid(PassRun& r);
void sigmoid_grad(PassRun& r);
void count_choices(PassRun& r);
void aux_loss_grad(PassRun& r);
void z_loss_grad(PassRun& r);

// device_experts.cc
void sort_rows(PassRun& r);
void count_rows(PassRun& r);
void sort_met(PassRun& r);
void take_rows(PassRun& r);
void return_rows(PassRun& r);
void take_weights(PassRun& r);
void return_weights(PassRun& r);
void expert_linear(PassRun& r);
void expert_linear_grad(PassRun& r);
void expert_linear_weight(PassRun& r);
void expert_swiglu(PassRun& r);
void expert_swiglu_grad(PassRun& r);

void geglu(PassRun& r);
void geglu_grad(PassRun& r);
void gelu(PassRun& r);
void gelu_grad(PassRun& r);

void cap(PassRun& r);
void cap_grad(PassRun& r);
void entropy(PassRun& r);
void entropy_grad(PassRun& r);
void add_losses(PassRun& r);

}  // namespace lockstep::nn::device
