#include "lockstep/nn/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/exact_sum.h"
#include "lockstep/nn/typed_rows.h"
#include "lockstep/nn/vector_math.h"

namespace lockstep::nn {
namespace {

// Log of the sum of exponentials; these over their sum.
template <class T, class W>
W soft(const T* logits, std::int64_t experts, W* probs) {
  W greatest = static_cast<W>(logits[0]), sum = 0;
  for (std::int64_t e = 1; e < experts; ++e)
    greatest = std::max(greatest, static_cast<W>(logits[e]));
  for (std::int64_t e = 0; e < experts; ++e)
    sum += probs[e] = std::exp(static_cast<W>(logits[e]) - greatest);
  for (std::int64_t e = 0; e < experts; ++e) probs[e] /= sum;
  return greatest + std::log(sum);
}

// Of a token: its probabilities of all experts, and those it is sent to.
template <class T, class W>
void route_token(const T* logits, std::int64_t experts, std::int64_t chosen, bool normalize,
                 W* weights, W* probs, std::int64_t* choices) {
  soft(logits, experts, probs);
  W of_chosen = 0;
  for (std::int64_t i = 0; i < chosen; ++i) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e)
      if (std::find(choices, choices + i, e) == choices + i &&
          (best < 0 || logits[e] > logits[best]))
        best = e;
    choices[i] = best;
    of_chosen += weights[i] = probs[best];
  }
  if (!normalize) return;
  for (std::int64_t i = 0; i < chosen; ++i) weights[i] /= of_chosen;
}

// d logit of e = p_e (d p_e - sum of p d p), where d p of a chosen c is d weight of c, or of
// normalized weights w = p / s, (d w_c - sum of d w w) / s; and what losses add, if any do.
template <class T, class W>
void route_token_grad(const W* d_weights, const W* probs, const std::int64_t* choices,
                      const W* added, std::int64_t experts, std::int64_t chosen, bool normalize,
                      T* d_logits) {
  W of_chosen = 1, shared = 0, all = 0;
  if (normalize) {
    of_chosen = 0;
    for (std::int64_t i = 0; i < chosen; ++i) of_chosen += probs[choices[i]];
    for (std::int64_t i = 0; i < chosen; ++i)
      shared += d_weights[i] * (probs[choices[i]] / of_chosen);
  }
  const auto d_prob = [&](std::int64_t i) { return (d_weights[i] - shared) / of_chosen; };
  for (std::int64_t i = 0; i < chosen; ++i) all += probs[choices[i]] * d_prob(i);
  const auto more = [&](std::int64_t e) { return added == nullptr ? W{0} : added[e]; };
  for (std::int64_t e = 0; e < experts; ++e) all += probs[e] * more(e);
  for (std::int64_t e = 0; e < experts; ++e)
    d_logits[e] = rounded_to<T>(probs[e] * (more(e) - all));
  for (std::int64_t i = 0; i < chosen; ++i) {
    const std::int64_t e = choices[i];
    d_logits[e] = rounded_to<T>(probs[e] * (d_prob(i) + more(e) - all));
  }
}

template <class W>
void tell(const PassRun& r, const std::vector<W>& losses, ExactSum* sum) {
  if (sum == nullptr || !RouterRows(r).tells) return;
  for (const W loss : losses) sum->add(loss);
}

}  // namespace

void route(PassRun& r) {
  const at::Tensor logits = r.in(0), weights = r.make(0), probs = r.make(1), choices = r.make(2);
  const std::int64_t experts = logits.size(1), chosen = weights.size(1);
  for_type_of(logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const T* x = data_of<T>(logits);
    W *w = memory_of<W>(weights), *p = memory_of<W>(probs);
    auto* c = memory_of<std::int64_t>(choices);
    for_rows(logits.size(0), experts * chosen, [&](std::int64_t t) {
      route_token(x + t * experts, experts, chosen, r.unit.normalizes_top_k, w + t * chosen,
                  p + t * experts, c + t * chosen);
    });
  });
}

void route_grad(PassRun& r) {
  const at::Tensor d = r.in(0), probs = r.in(1), choices = r.in(2), d_logits = r.make(0);
  const std::int64_t experts = probs.size(1), chosen = d.size(1);
  for_type_of(d_logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const W *d_weights = data_of<W>(d), *p = data_of<W>(probs);
    const auto* c = data_of<std::int64_t>(choices);
    const W* added = r.part().in.size() > 3 ? data_of<W>(r.in(3)) : nullptr;
    T* into = memory_of<T>(d_logits);
    for_rows(d.size(0), experts, [&](std::int64_t t) {
      route_token_grad(d_weights + t * chosen, p + t * experts, c + t * chosen,
                       added == nullptr ? nullptr : added + t * experts, experts, chosen,
                       r.unit.normalizes_top_k, into + t * experts);
    });
  });
  if (r.inputs.router.expert_tokens == nullptr || !RouterRows(r).tells) return;
  const auto* c = data_of<std::int64_t>(choices);
  for (std::int64_t i = 0; i < choices.numel(); ++i) ++r.inputs.router.expert_tokens[c[i]];
}

void sigmoid(PassRun& r) {
  const at::Tensor logits = r.in(0), weights = r.make(0);
  for_type_of(logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const T* x = data_of<T>(logits);
    W* w = memory_of<W>(weights);
    for (std::int64_t i = 0; i < logits.numel(); ++i)
      w[i] = 1 / (1 + std::exp(-static_cast<W>(x[i])));
  });
}

void sigmoid_grad(PassRun& r) {
  const at::Tensor d = r.in(0), weights = r.in(1), d_logits = r.make(0);
  for_type_of(d_logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const W *above = data_of<W>(d), *w = data_of<W>(weights);
    T* into = memory_of<T>(d_logits);
    for (std::int64_t i = 0; i < d.numel(); ++i)
      into[i] = rounded_to<T>(above[i] * w[i] * (1 - w[i]));
  });
}

void count_choices(PassRun& r) {
  const at::Tensor choices = r.in(0), counts = r.make(0);
  const auto* c = data_of<std::int64_t>(choices);
  auto* count = memory_of<std::int64_t>(counts);
  const std::int64_t sequences = counts.size(0), experts = counts.size(1);
  const std::int64_t each = choices.numel() / sequences;
  std::fill_n(count, sequences * experts, 0);
  for (std::int64_t i = 0; i < choices.numel(); ++i) ++count[i / each * experts + c[i]];
}

void aux_loss_grad(PassRun& r) {
  const at::Tensor probs = r.in(0), counts = r.in(1), d_probs = r.make(0);
  const std::int64_t experts = probs.size(1);
  const RouterRows rows(r);
  for_type_of(probs, [&]<class T>(T) {
    using W = WideOf<T>;
    const W* p = data_of<W>(probs);
    const auto* count = data_of<std::int64_t>(counts);
    W* into = memory_of<W>(d_probs);
    const W factor = static_cast<W>(aux_loss_factor(r));
    std::vector<W> losses(static_cast<std::size_t>(rows.count));
    for_rows(rows.count, experts, [&](std::int64_t t) {
      const auto* chosen = count + rows.sequence_of(t) * experts;
      W sum = 0;
      for (std::int64_t e = 0; e < experts; ++e) {
        const W times = static_cast<W>(chosen[e]);
        sum += p[t * experts + e] * times;
        into[t * experts + e] = factor * times;
      }
      losses[static_cast<std::size_t>(t)] = sum;
    });
    tell(r, losses, r.inputs.router.aux_loss);
  });
}

void z_loss_grad(PassRun& r) {
  const at::Tensor d_logits = r.turn(0), logits = r.in(1);
  const std::int64_t rows = logits.size(0), experts = logits.size(1);
  for_type_of(logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const T* x = data_of<T>(logits);
    T* into = memory_of<T>(d_logits);
    const W factor = static_cast<W>(z_loss_factor(r));
    std::vector<W> losses(static_cast<std::size_t>(rows));
    for_rows(rows, experts, [&](std::int64_t t) {
      std::vector<W> probs(static_cast<std::size_t>(experts));
      const W log_sum = soft(x + t * experts, experts, probs.data());
      for (std::int64_t e = 0; e < experts; ++e) {
        T& d = into[t * experts + e];
        d = rounded_to<T>(static_cast<W>(d) +
                          factor * log_sum * probs[static_cast<std::size_t>(e)]);
      }
      losses[static_cast<std::size_t>(t)] = log_sum * log_sum;
    });
    tell(r, losses, r.inputs.router.z_loss);
  });
}

double aux_loss_factor(const PassRun& r) {
  const auto seq = static_cast<double>(r.sizes.seq_of(parts::Dim::kN));
  return r.unit.aux_loss_coeff * static_cast<double>(r.sizes[parts::Dim::kExperts]) /
         (static_cast<double>(r.sizes[parts::Dim::kTop]) * seq * seq * r.inputs.router.sequences);
}

double z_loss_factor(const PassRun& r) {
  const auto seq = static_cast<double>(r.sizes.seq_of(parts::Dim::kN));
  return 2.0 * r.unit.z_loss_coeff / (seq * r.inputs.router.sequences);
}

RouterRows::RouterRows(const PassRun& r)
    : first(0), count(r.sizes[parts::Dim::kP]), seq(r.sizes.seq) {
  if (r.unit.group.shares_rows())
    first = r.unit.group.index() * count;
  else
    tells = r.unit.group.index() == 0;
}

}  // namespace lockstep::nn
