// Floating-point operations per token, a multiplication and an addition counting as two. Only
// matrix products and attention are counted, as every published MFU does.
//
// Two conventions for attention are in use and differ by 4 % at 8k tokens and 40 % at 128k for a
// 405B model, so a figure without its convention means little:
//   kCausal  a query meets the keys it may see: (s + 1) / 2 on average, fewer with a window
//   kFull    a query meets all s keys, masks ignored (PaLM, Megatron-LM, nanoGPT)
#pragma once

#include <cstdint>

#include "lockstep/base/units.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/context.h"

namespace lockstep::model {

enum class Mask : std::uint8_t { kCausal, kFull };

// Forward pass of one token.
struct TokenFlops {
  Flops matmul;     // of the experts a token meets
  Flops attention;  // scores and their product with the values

  Flops forward() const { return matmul + attention; }
  Flops train() const { return forward() * 3.0; }  // backward is twice the forward
};

// Keys that a query of a sequence of `seq` tokens meets, on average. REQUIRES: seq >= 1.
double mean_keys(std::int64_t seq, std::int64_t window, Mask mask);

// FLOPs of attention, causal, on the busiest of `cp` ranks that share sequences of `seq` tokens,
// over the mean of them. REQUIRES: 2 cp divides `seq`.
double attention_imbalance(const Model& model, CpMethod method, std::int64_t cp, std::int64_t seq);

TokenFlops flops_per_token(const Unit& unit, std::int64_t seq, Mask mask);
TokenFlops flops_per_token(const Model& model, std::int64_t seq, Mask mask);

}  // namespace lockstep::model
