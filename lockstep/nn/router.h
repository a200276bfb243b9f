// The router of a mixture of experts on a CPU: which experts a token is sent to, and the losses
// that keep it in shape (parts/experts.cc). By hand, because LibTorch's topk leaves open what
// happens to equal scores. What a step tells of routers goes to PassInputs::router.
#pragma once

#include <cstdint>

#include "lockstep/nn/pass_run.h"

namespace lockstep::nn {

// Logits -> weights, scores, experts: those of the highest score, which with a selection bias is
// part of what they are chosen by and of nothing else. Of equal ones the lower expert comes first.
void route(PassRun& r);
void route_grad(PassRun& r);

inline constexpr double kLeastSum = 1e-20;  // of a token's scores by sigmoid

// Of the gate of experts that every token meets: logits -> weights.
void sigmoid(PassRun& r);
void sigmoid_grad(PassRun& r);

// Experts of tokens -> how often each sequence on these ranks chose each.
void count_choices(PassRun& r);

void aux_loss_grad(PassRun& r);
void z_loss_grad(PassRun& r);

// An expert's choices in a sequence times this are the gradient of its probability for each of the
// sequence's tokens, which is its share of the token's scores; a probability of softmax times
// logsumexp and this is that of its logit.
double aux_loss_factor(const PassRun& r);
double z_loss_factor(const PassRun& r);

// This rank's rows among those of its tensor ranks.
struct RouterRows {
  explicit RouterRows(const PassRun& r);
  std::int64_t sequence_of(std::int64_t row) const { return (first + row) / seq; }
  std::int64_t first, count, seq;
  bool tells = true;  // of its tokens; others that have the same do not
};

}  // namespace lockstep::nn
