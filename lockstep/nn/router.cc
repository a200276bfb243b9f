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

// The `count` greatest of `all` numbers that may be taken, greatest first; of equal ones the lower
// place comes first.
void greatest(std::int64_t all, std::int64_t count, const auto& value, const auto& may_be,
              std::int64_t* found) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < all; ++e)
      if (may_be(e) && std::find(found, found + i, e) == found + i &&
          (best < 0 || value(e) > value(best)))
        best = e;
    found[i] = best;
  }
}

// Experts by what they are chosen by. Where there are groups, those of the best groups: by their
// best expert (DeepSeek-V2, arXiv 2405.04434, section 2.2.2), with a selection bias by the sum of
// their best two (V3).
void choose(const model::Moe& moe, const auto& value, std::int64_t* choices) {
  const auto any = [](std::int64_t) { return true; };
  if (moe.groups == 1) return greatest(moe.experts, moe.top_k, value, any, choices);
  const std::int64_t each = moe.experts / moe.groups;
  const bool two = moe.router_bias && each > 1;
  const auto of_group = [&](std::int64_t group) {
    std::int64_t best[2];
    const auto own = [&](std::int64_t i) { return value(group * each + i); };
    greatest(each, two ? 2 : 1, own, any, best);
    return two ? own(best[0]) + own(best[1]) : own(best[0]);
  };
  std::vector<std::int64_t> open(static_cast<std::size_t>(moe.top_groups));
  greatest(moe.groups, moe.top_groups, of_group, any, open.data());
  greatest(
      moe.experts, moe.top_k, value,
      [&](std::int64_t e) { return std::ranges::find(open, e / each) != open.end(); }, choices);
}

// What scores are divided by is never less: those of sigmoids may all vanish (transformers adds as
// much).
template <class W>
W least_sum(const model::Moe& moe) {
  return static_cast<W>(moe.score == model::RouterScore::kSigmoid ? kLeastSum : 0.0);
}

// Of a token: its scores of all experts, and those it is sent to.
template <class T, class W>
void route_token(const T* logits, const model::Moe& moe, const float* bias, W* weights, W* scores,
                 std::int64_t* choices) {
  if (moe.score == model::RouterScore::kSoftmax)
    soft(logits, moe.experts, scores);
  else
    for (std::int64_t e = 0; e < moe.experts; ++e)
      scores[e] = 1 / (1 + std::exp(-static_cast<W>(logits[e])));
  if (bias == nullptr)
    choose(moe, [&](std::int64_t e) { return static_cast<W>(logits[e]); }, choices);
  else
    choose(moe, [&](std::int64_t e) { return scores[e] + static_cast<W>(bias[e]); }, choices);
  W of_chosen = least_sum<W>(moe);
  for (std::int64_t i = 0; i < moe.top_k; ++i) of_chosen += weights[i] = scores[choices[i]];
  const W scale = static_cast<W>(moe.routed_scale);
  for (std::int64_t i = 0; i < moe.top_k; ++i)
    weights[i] = (moe.norm_topk_prob ? weights[i] / of_chosen : weights[i]) * scale;
}

// d score of a chosen expert is d weight of it times the scale, or of normalized weights w = s / S,
// (d w - sum of d w w) / S.
template <class W>
struct ChosenGrad {
  ChosenGrad(const W* d_weights, const W* scores, const std::int64_t* choices,
             const model::Moe& moe)
      : d(d_weights), scale(static_cast<W>(moe.routed_scale)) {
    if (!moe.norm_topk_prob) return;
    of_chosen = least_sum<W>(moe);
    for (std::int64_t i = 0; i < moe.top_k; ++i) of_chosen += scores[choices[i]];
    for (std::int64_t i = 0; i < moe.top_k; ++i)
      shared += scale * d[i] * (scores[choices[i]] / of_chosen);
  }
  W operator[](std::int64_t i) const { return (scale * d[i] - shared) / of_chosen; }
  const W* d;
  W scale, of_chosen = 1, shared = 0;
};

// d logit of e = p_e (d p_e - sum of p d p). `added`: what losses add to d p, if any do.
template <class T, class W>
void softmax_grad(const ChosenGrad<W>& chosen, const W* probs, const std::int64_t* choices,
                  const W* added, const model::Moe& moe, T* d_logits) {
  W all = 0;
  for (std::int64_t i = 0; i < moe.top_k; ++i) all += probs[choices[i]] * chosen[i];
  const auto more = [&](std::int64_t e) { return added == nullptr ? W{0} : added[e]; };
  for (std::int64_t e = 0; e < moe.experts; ++e) all += probs[e] * more(e);
  for (std::int64_t e = 0; e < moe.experts; ++e)
    d_logits[e] = rounded_to<T>(probs[e] * (more(e) - all));
  for (std::int64_t i = 0; i < moe.top_k; ++i) {
    const std::int64_t e = choices[i];
    d_logits[e] = rounded_to<T>(probs[e] * (chosen[i] + more(e) - all));
  }
}

// d logit of e = s_e (1 - s_e) d s_e; what losses add is to d p, where p = s / S of all experts.
template <class T, class W>
void sigmoid_scores_grad(const ChosenGrad<W>& chosen, const W* scores, const std::int64_t* choices,
                         const W* added, const model::Moe& moe, T* d_logits) {
  W all = 1, mean = 0;
  if (added != nullptr) {
    all = least_sum<W>(moe);
    for (std::int64_t e = 0; e < moe.experts; ++e) all += scores[e];
    for (std::int64_t e = 0; e < moe.experts; ++e) mean += added[e] * (scores[e] / all);
  }
  const auto d = [&](std::int64_t e, W own) {
    const W more = added == nullptr ? W{0} : (added[e] - mean) / all;
    d_logits[e] = rounded_to<T>((own + more) * scores[e] * (1 - scores[e]));
  };
  for (std::int64_t e = 0; e < moe.experts; ++e) d(e, 0);
  for (std::int64_t i = 0; i < moe.top_k; ++i) d(choices[i], chosen[i]);
}

template <class W>
void tell(const PassRun& r, const std::vector<W>& losses, ExactSum* sum) {
  if (sum == nullptr || !RouterRows(r).tells) return;
  for (const W loss : losses) sum->add(loss);
}

}  // namespace

void route(PassRun& r) {
  const at::Tensor logits = r.in(0), weights = r.make(0), scores = r.make(1), choices = r.make(2);
  const std::int64_t experts = logits.size(1), chosen = weights.size(1);
  const at::Tensor& bias = r.inputs.router_bias;
  const float* const b = bias.defined() ? data_of<float>(bias) : nullptr;
  LS_CHECK((b != nullptr) == r.unit.moe.router_bias, "a router without its selection bias");
  for_type_of(logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const T* x = data_of<T>(logits);
    W *w = memory_of<W>(weights), *s = memory_of<W>(scores);
    auto* c = memory_of<std::int64_t>(choices);
    for_rows(logits.size(0), experts * chosen, [&](std::int64_t t) {
      route_token(x + t * experts, r.unit.moe, b, w + t * chosen, s + t * experts, c + t * chosen);
    });
  });
}

void route_grad(PassRun& r) {
  const at::Tensor d = r.in(0), scores = r.in(1), choices = r.in(2), d_logits = r.make(0);
  const std::int64_t experts = scores.size(1), top = d.size(1);
  const model::Moe& moe = r.unit.moe;
  for_type_of(d_logits, [&]<class T>(T) {
    using W = WideOf<T>;
    const W *d_weights = data_of<W>(d), *all_scores = data_of<W>(scores);
    const auto* all_choices = data_of<std::int64_t>(choices);
    const W* added = r.part().in.size() > 3 ? data_of<W>(r.in(3)) : nullptr;
    T* into = memory_of<T>(d_logits);
    for_rows(d.size(0), experts, [&](std::int64_t t) {
      const W *s = all_scores + t * experts, *more = added == nullptr ? added : added + t * experts;
      const std::int64_t* c = all_choices + t * top;
      const ChosenGrad<W> chosen(d_weights + t * top, s, c, moe);
      if (moe.score == model::RouterScore::kSoftmax)
        softmax_grad(chosen, s, c, more, moe, into + t * experts);
      else
        sigmoid_scores_grad(chosen, s, c, more, moe, into + t * experts);
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
  const at::Tensor scores = r.in(0), counts = r.in(1), d_probs = r.make(0);
  const std::int64_t experts = scores.size(1);
  const bool are_shares = r.unit.moe.score == model::RouterScore::kSoftmax;
  const RouterRows rows(r);
  for_type_of(scores, [&]<class T>(T) {
    using W = WideOf<T>;
    const W* s = data_of<W>(scores);
    const auto* count = data_of<std::int64_t>(counts);
    W* into = memory_of<W>(d_probs);
    const W factor = static_cast<W>(aux_loss_factor(r));
    std::vector<W> losses(static_cast<std::size_t>(rows.count));
    for_rows(rows.count, experts, [&](std::int64_t t) {
      const auto* chosen = count + rows.sequence_of(t) * experts;
      W sum = 0, all = least_sum<W>(r.unit.moe);
      for (std::int64_t e = 0; e < experts; ++e) {
        const W times = static_cast<W>(chosen[e]), score = s[t * experts + e];
        all += score;
        sum += score * times;
        into[t * experts + e] = factor * times;
      }
      losses[static_cast<std::size_t>(t)] = are_shares ? sum : sum / all;
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
